"""A model nested 240 deep, near Python's limit of calls, and a recursive one that catches its RecursionError."""
import sys

import torch
from torch import nn

torch.manual_seed(4)
deep = nn.Linear(2, 2)
for _ in range(240):
    deep = nn.Sequential(deep)


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = nn.Linear(2, 2)

    def forward(self, x, depth):
        if depth == 0:
            return self.leaf(x)
        return self(x, depth - 1) + self.leaf(x)


tree = Tree()
opt = torch.optim.SGD([*deep.parameters(), *tree.parameters()], lr=0.001)
losses = []
for i in range(8):
    x = torch.randn(3, 2)
    loss = deep(x).pow(2).mean() + tree(x, 20).div(20).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
try:
    tree(x, 2 * sys.getrecursionlimit())
except RecursionError:
    losses.append(-1.0)
loss = deep(x).pow(2).mean()
loss.backward()
print(losses, loss.item())
