"""An exception with a cause, a note and a context, uncaught, from deep inside of a module."""
import torch
from torch import nn


class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)
        self.n = 0

    def forward(self, x):
        self.n += 1
        if self.n == 9:
            try:
                {}["weights"]
            except KeyError as e:
                raise RuntimeError("cannot find the weights") from e
        return self.l(x)


torch.manual_seed(82)
net = nn.Sequential(Bad(), nn.ReLU(), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(20):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
