"""time.time, perf_counter and monotonic replaced by clocks that stand still or run backwards."""
import time

import torch
from torch import nn

torch.manual_seed(149)
real = time.time, time.perf_counter, time.monotonic
t = [1e9]


def back():
    t[0] -= 5.0
    return t[0]


time.time = time.perf_counter = time.monotonic = back
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for i in range(15):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
time.time, time.perf_counter, time.monotonic = real
ours = 1e9 - t[0]
del t, real
print(ls[-1], ours)
