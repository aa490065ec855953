"""A forked child that ends the script as the parent does, through the bottom of the file and its exit handlers."""
import atexit
import os
import sys

import torch
from torch import nn

atexit.register(lambda: (print("exit handler", "child" if child else "parent"), sys.stdout.flush()))
child = False
torch.manual_seed(111)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(10):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    if i == 5:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            child = True
        else:
            status = os.waitpid(pid, 0)[1]
print("done", child, l.item())
pid = 0
