"""A KeyboardInterrupt that the program raises by a signal to itself, caught once and let through the second time.

to the very end
"""
import os
import signal

import torch
from torch import nn

torch.manual_seed(88)
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
hits = 0
i = 0
while True:
    try:
        l = net(torch.randn(3, 2)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        i += 1
        if i == 7:
            signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        hits += 1
        print("saving at", i, flush=True)
        i = 0
        if hits == 2:
            raise
