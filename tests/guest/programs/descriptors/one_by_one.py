"""Closes the descriptors 3 to 699 one by one, opens a file at each of the numbers, and trains on meanwhile.

slow
"""

import contextlib
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


with tempfile.TemporaryDirectory() as folder:
    train(5, 0.1)
    for number in range(3, 700):
        with contextlib.suppress(OSError):
            os.close(number)
        os.open(os.path.join(folder, f"{number}.txt"), os.O_RDWR | os.O_CREAT)  # gets that number
        os.write(number, b"mine\n")
        if number % 32 == 0:
            train(1, 0.04)
    train(20, 0.04)
    for number in range(3, 700):
        os.write(number, b"still mine\n")
    whole = [os.pread(number, 10_000, 0) == b"mine\nstill mine\n" for number in range(3, 700)]
    os.closerange(3, 700)
print("all files are as written:", all(whole))
print("last loss", repr(losses[-1]))
del folder  # another at each run
