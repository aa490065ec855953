"""Closes every descriptor above 2 in the middle of the training, then opens files of its own, which take the numbers.

slow
"""

import os
import tempfile
import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []


def train(steps: int, pause: float) -> None:
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        time.sleep(pause)


with tempfile.TemporaryDirectory() as folder:
    train(20, 0.03)
    os.closerange(3, 1000)
    files = [os.open(os.path.join(folder, f"{i}.bin"), os.O_RDWR | os.O_CREAT) for i in range(600)]
    for i, file in enumerate(files):
        os.write(file, bytes([i % 256]) * 100)
    train(40, 0.03)
    for i, file in enumerate(files):
        os.write(file, b"more")  # at the offset where this program left it
    contents = [open(os.path.join(folder, f"{i}.bin"), "rb").read() for i in range(600)]
    intact = [content == bytes([i % 256]) * 100 + b"more" for i, content in enumerate(contents)]
    for file in files:
        os.close(file)

print("files intact:", sum(intact), "of", len(intact))
print("last loss", repr(losses[-1]))
del folder  # another at each run
