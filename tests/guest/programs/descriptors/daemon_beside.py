"""Starts a daemon by forking twice; it closes all descriptors and trains on its own, while this process trains on."""

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


train(10, 0.03)
report = tempfile.mktemp()
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 1024)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    train(30, 0.01)
    with open(report + ".part", "w") as file:
        file.write(repr(losses[-1]))
    os.rename(report + ".part", report)
    os._exit(0)
os.waitpid(child, 0)
train(30, 0.03)
until = time.monotonic() + 30
while not os.path.exists(report) and time.monotonic() < until:
    time.sleep(0.02)
print("the daemon ended with", open(report).read())
print("last loss", repr(losses[-1]))
del child, report, until  # another at each run
