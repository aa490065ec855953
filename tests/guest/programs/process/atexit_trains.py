"""Training goes on inside an atexit handler, another handler raises, a third calls sys.exit."""
import atexit
import sys

import torch
from torch import nn

torch.manual_seed(86)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def train(n):
    for _ in range(n):
        l = net(torch.randn(4, 3)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
    print("after", n, l.item())


@atexit.register
def last():
    train(3)


@atexit.register
def bad():
    raise KeyError("exit handler")


train(6)
print("end of the script")
