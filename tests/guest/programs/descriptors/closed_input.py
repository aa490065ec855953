"""Closes standard input before torch is imported; its next file gets the number 0."""

import os
import tempfile
import time

os.close(0)

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []


def train(steps: int, pause: float = 0.0) -> None:
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        time.sleep(pause)


train(10, 0.02)
path = os.path.join(tempfile.mkdtemp(), "data.txt")
print("the file has number", number := os.open(path, os.O_RDWR | os.O_CREAT))
os.write(number, b"0123456789")
train(30, 0.03)
print(os.pread(0, 100, 0), os.lseek(0, 0, os.SEEK_CUR))
print("last loss", repr(losses[-1]))
del path  # another at each run
