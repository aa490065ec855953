"""The collector switched off, frozen, with callbacks and thresholds of the program, and reference cycles counted."""
import gc
import weakref

import torch
from torch import nn

events = []
gc.callbacks.append(lambda phase, info: events.append(phase) if phase == "start" and info["generation"] == 2 else None)
gc.disable()
gc.set_threshold(50, 5, 5)
torch.manual_seed(94)


class Node:
    pass


dead = []
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(20):
    a = Node()
    a.me, a.out = a, net(torch.randn(4, 3))
    weakref.finalize(a, dead.append, i)
    l = a.out.pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    del a
seen = len(dead)
gc.collect()
print(seen, len(dead), gc.isenabled(), gc.get_threshold(), len(events))
