"""Opens files until the system gives no more, trains with none left, and closes them."""

import os
import resource
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


train(40, 0.01)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(128, hard), hard))
files = []
try:
    while True:
        files.append(os.open(os.devnull, os.O_RDONLY))
except OSError as error:
    print(error.strerror, files[:20])
train(30, 0.03)
for file in files:
    os.close(file)
del files, file
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print("last loss", repr(losses[-1]))
