"""Layers that return sparse, nested, mkldnn and quantised tensors on the way."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")


class Layouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(8, 8), nn.Linear(8, 2)
        self.sparse, self.nested, self.jagged, self.mkl, self.quant = (nn.Identity() for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.mix(x))
        s = self.sparse(h.to_sparse()).to_dense()
        n = self.nested(torch.nested.as_nested_tensor([h[:3], h[3:]]))
        j = self.jagged(torch.nested.as_nested_tensor([h[:5], h[5:]], layout=torch.jagged))
        back = torch.cat([*n.unbind()]) + torch.cat([*j.unbind()])
        with torch.no_grad():
            m = self.mkl(h.detach().to_mkldnn()).to_dense()
            q = self.quant(torch.quantize_per_tensor(h.detach(), 0.1, 0, torch.quint8)).dequantize()
        return self.head(s + back + 0.01 * m + 0.01 * q)


torch.manual_seed(0)
model = Layouts()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses: list[float] = []
for step in range(80):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(repr(losses[-1]))
