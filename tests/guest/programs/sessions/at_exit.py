"""A session that an exit handler ends and asks, and another that one makes anew.

slow
"""
import atexit

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(16)


def train(net, steps):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        opt.zero_grad()
        net(torch.ones(4, 3)).pow(2).mean().backward()
        opt.step()


def late():
    other = nn.Linear(3, 1)
    with NeuralDbg(other, probes=False) as last:
        train(other, 4)
    print("late", last.steps, other.bias.item())


def ends():
    dbg.stop()
    print("ends", dbg.steps, dbg.diagnose().verdict)


net = nn.Linear(3, 1)
dbg = NeuralDbg(net, probes=False)
dbg.start()
atexit.register(late)
atexit.register(ends)
train(net, 10)
print(net.bias.item())
