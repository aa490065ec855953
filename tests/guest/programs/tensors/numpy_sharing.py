"""Weights that share their memory with numpy arrays, which the program changes from there; a memory mapped file."""
import tempfile

import numpy as np
import torch
from torch import nn

torch.manual_seed(129)
arr = np.random.RandomState(0).randn(3, 4).astype(np.float32)
f = tempfile.NamedTemporaryFile()
mm = np.memmap(f.name, dtype=np.float32, mode="w+", shape=(3,))
net = nn.Linear(4, 3)
net.weight = nn.Parameter(torch.from_numpy(arr))
net.bias = nn.Parameter(torch.from_numpy(mm))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for i in range(15):
    l = net(torch.randn(6, 4)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    arr *= 0.99
    mm[0] += 0.01
    ls.append(l.item())
mm.flush()
print(ls[-1], float(arr.sum()), float(mm.sum()))
net.bias = nn.Parameter(torch.zeros(3))
del mm, f
