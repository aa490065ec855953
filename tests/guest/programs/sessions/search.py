"""A search over hyperparameters in one session: models, optimizers and data of each round are let go of.

slow
"""
import weakref

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(19)
died, found, order = [], [], []
with NeuralDbg(discover=True, probes=False) as dbg:
    for width in (2, 4, 8):
        for lr in (0.3, 0.03):
            net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
            opt = torch.optim.SGD(net.parameters(), lr=lr)
            data = torch.randn(32, 3)
            for thing, name in ((net, "net"), (opt, "opt"), (data, "data")):
                weakref.finalize(thing, died.append, f"{name} {width} {lr}")
            for i in range(6):
                opt.zero_grad()
                loss = net(data[i::6]).pow(2).mean()
                loss.backward()
                opt.step()
            found.append((width, lr, loss.item()))
            del net, opt, data, loss, thing
            order.append(sorted(died))
print(order[-1], min(found, key=lambda one: one[2]), dbg.steps)
del died
