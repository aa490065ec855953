"""Weights of an unused layer on pages that nobody may read, first in a loop that updates by hand; a layer gives out such a
table, of which the program reads the part that is there."""

import ctypes
import mmap

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
SIZE = 512 * 64 * 4
room = mmap.mmap(-1, SIZE)
held = np.frombuffer(room, dtype=np.float32)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.from_numpy(held).view(512, 64))

    def forward(self):
        return self.table


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.old = nn.Linear(64, 512, bias=False)
        self.table = Table()
        self.used = nn.Linear(64, 1)
        self.array = held[:8]

    def forward(self, x):
        return self.used(x + self.table()[0])


net = Net()
net.old.weight = nn.Parameter(torch.from_numpy(held).view(512, 64))
for by_hand in (True, False):
    optimizer = None if by_hand else torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(8):
        if step == 1:
            assert libc.mprotect(held.ctypes.data + SIZE // 2, SIZE // 2, 0) == 0
        loss = net(torch.randn(16, 64)).pow(2).mean()
        net.zero_grad()
        loss.backward()
        if optimizer:
            optimizer.step()
        else:
            with torch.no_grad():
                net.used.weight -= 0.01 * net.used.weight.grad
        net.eval()
        with torch.no_grad():
            print(step, loss.item(), net(torch.randn(4, 64)).sum().item())
        net.train()
    assert libc.mprotect(held.ctypes.data, SIZE, 3) == 0
