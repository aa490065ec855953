"""Models that are made, trained under a session and deleted in a loop; each must be gone before the next is made.

slow
"""
import weakref

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(17)
alive, steps = [], []
died = []
for i in range(8):
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    weakref.finalize(net, died.append, i)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with NeuralDbg(net, probes=False) as dbg:
        for _ in range(5):
            opt.zero_grad()
            loss = net(torch.randn(4, 3)).pow(2).mean()
            loss.backward()
            opt.step()
    steps.append(dbg.steps)
    del net, opt, loss
    alive.append(i + 1 - len(died))
print(alive, steps)
del died
