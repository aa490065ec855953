"""May write no file of more than 50 KB, and is ended by the signal where it does (SIGXFSZ has its default again)."""

import resource
import signal
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


signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
train(40, 0.04)
resource.setrlimit(resource.RLIMIT_FSIZE, before)
print("last loss", repr(losses[-1]))
