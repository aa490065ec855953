"""Closes all descriptors, then holds fcntl locks on files of its own; another process finds them locked to the end."""

import fcntl
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


folder = tempfile.mkdtemp()
train(10, 0.06)
os.closerange(3, 1024)
files = [os.open(os.path.join(folder, f"{i}.lock"), os.O_RDWR | os.O_CREAT) for i in range(600)]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
train(20, 0.06)
del files, file  # their numbers alone
child = os.fork()
if child == 0:
    held = 0
    for i in range(600):
        other = os.open(os.path.join(folder, f"{i}.lock"), os.O_RDWR)
        try:
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held += 1
    os._exit(held == 600)
print("all locks held:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("last loss", repr(losses[-1]))
del child, folder  # another at each run
