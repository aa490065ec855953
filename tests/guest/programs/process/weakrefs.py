"""Weak references with callbacks to outputs, losses and models: all must die when the program lets them go."""
import weakref

import torch
from torch import nn

torch.manual_seed(95)
died = []
for run in range(3):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    weakref.finalize(net, died.append, f"net{run}")
    weakref.finalize(opt, died.append, f"opt{run}")
    for i in range(6):
        out = net(torch.randn(4, 3))
        loss = out.pow(2).mean()
        weakref.finalize(out, died.append, f"out{run}.{i}")
        weakref.finalize(loss, died.append, f"loss{run}.{i}")
        opt.zero_grad()
        loss.backward()
        opt.step()
    del out, loss
late = len(died)
import gc

del net, opt
gc.collect()
print(len(died), sorted(died)[:4])
del died, late
