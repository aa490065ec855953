"""Puts a log file of its own over all descriptors from 3 to 63 with dup2, as some daemons do with /dev/null."""

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


train(10, 0.06)
with tempfile.TemporaryFile() as log:
    kept = os.dup(log.fileno())
    copy = os.open(os.devnull, os.O_RDWR)
    own = {log.fileno(), kept, copy}
    for number in range(3, 700):
        if number not in own:
            os.dup2(log.fileno(), number)
    os.write(514, b"first line\n")
    train(20, 0.06)
    os.write(516, b"second line\n")
    size, place = os.fstat(kept).st_size, os.lseek(kept, 0, os.SEEK_CUR)
    print(size, place, os.pread(kept, 100, 0))
    os.closerange(kept, 700)
print("last loss", repr(losses[-1]))
