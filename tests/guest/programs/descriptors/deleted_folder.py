"""Changes into a folder of its own and deletes it, and trains on without a working folder."""

import os
import tempfile
import time

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


home = os.getcwd()
folder = tempfile.mkdtemp()
os.chdir(folder)
train(10, 0.02)
os.rmdir(folder)
try:
    os.getcwd()
except FileNotFoundError:
    print("there is no working folder")
train(20, 0.03)
print("last loss", repr(losses[-1]))
del folder  # another at each run
