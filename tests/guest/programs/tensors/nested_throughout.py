"""Jagged tensors as inputs, outputs, targets and what attention works on; parameters' gradients are ordinary ones."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(213)


class Attend(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, [2, -1]).transpose(1, 2) for part in (self.query, self.key, self.value))
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attend, self.norm, self.head = nn.Embedding(12, 8), Attend(8), nn.LayerNorm(8), nn.Linear(8, 12)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.embed(ids)
        return self.head(self.norm(h + self.attend(h)))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=0.02)
losses: list[float] = []
for step in range(24):
    rows = [torch.randint(0, 12, (length,)) for length in (3, 6, 2)]
    ids = torch.nested.nested_tensor(rows, layout=torch.jagged)
    opt.zero_grad()
    out = net(ids)
    loss = nn.functional.cross_entropy(out.values(), ids.values())
    loss.backward()
    opt.step()
    losses.append(loss.item())
del ids, out
print(repr(losses[-1]))
