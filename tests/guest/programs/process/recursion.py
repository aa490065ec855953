"""A recursion limit near to what the program needs: a recursive tree network, and RecursionError caught."""
import sys

import torch
from torch import nn


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf, self.join = nn.Linear(2, 4), nn.Linear(8, 4)

    def forward(self, t):
        if isinstance(t, torch.Tensor):
            return torch.tanh(self.leaf(t))
        return torch.tanh(self.join(torch.cat([self(t[0]), self(t[1])], -1)))


torch.manual_seed(96)
sys.setrecursionlimit(700)
net = Tree()
opt = torch.optim.SGD(net.parameters(), lr=0.05)


def grow(d):
    return torch.randn(2) if d == 0 else (grow(d - 1), grow(0))


def forever(n):
    return forever(n + 1)


caught = 0
for i in range(6):
    l = net(grow(30)).pow(2).sum()
    opt.zero_grad()
    l.backward()
    opt.step()
    try:
        forever(0)
    except RecursionError:
        caught += 1
print(caught, l.item(), sys.getrecursionlimit())
