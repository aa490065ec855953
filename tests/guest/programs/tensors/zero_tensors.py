"""Zero tensors, which have a shape and no memory, as outputs and in sums, and parameters made in inference mode."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(212)


class Zero(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._efficientzerotensor(x.shape)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.zero, self.b = nn.Linear(4, 8), Zero(), nn.Linear(8, 1)
        with torch.inference_mode():
            self.frozen = nn.Parameter(torch.randn(8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        h = torch.tanh(h) + self.zero(h) + self.frozen
        return self.b(h)


net = Net()
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.05)
losses: list[float] = []
for step in range(40):
    x = torch.randn(8, 4)
    opt.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(repr(losses[-1]))
