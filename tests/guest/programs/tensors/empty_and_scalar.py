"""Parameters without elements, parameters of no dimension, empty outputs, and a loss of one element in three axes."""

import torch
from torch import nn

torch.manual_seed(205)


class Nothing(nn.Module):
    """Gives tensors without elements beside what it is given."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x, x[:0], x.new_empty(0, 3, 0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.nothing = nn.Linear(4, 4), nn.Linear(4, 1), Nothing()
        self.none = nn.Parameter(torch.empty(0))
        self.rows = nn.Parameter(torch.empty(3, 0, 2))
        self.gain = nn.Parameter(torch.tensor(1.0))
        self.wide = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0))
        self.empty = nn.Linear(0, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, rows, hollow = self.nothing(torch.tanh(self.a(x)) * self.gain + self.wide)
        self.count += 1
        h = h + self.empty(x[:, :0])
        return self.b(h) + rows.sum() + hollow.sum() + self.none.sum() + self.rows.prod() * 0.01


net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=0.02)
losses: list[float] = []
for step in range(40):
    x = torch.randn(8, 4)
    opt.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean().reshape(1, 1, 1)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
print(repr(losses[-1]), int(net.count))
