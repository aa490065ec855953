"""A program that inspects its own stack: depth in the forward, names of callers, sys._getframe tricks."""
import inspect
import sys

import torch
from torch import nn


def who():
    return sys._getframe(1).f_code.co_name, sys._getframe(2).f_code.co_name


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 1)

    def forward(self, x):
        seen.add(tuple(f.function for f in inspect.stack()[:1]))
        return self.l(x)


class Opt(torch.optim.SGD):
    def zero_grad(self, set_to_none=True):
        seen.add(who()[0])
        super().zero_grad(set_to_none)


seen = set()
torch.manual_seed(151)
net = Net()
opt = Opt(net.parameters(), lr=0.1)
for i in range(8):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
print(seen, inspect.getsource(Net.forward).count("\n"))
