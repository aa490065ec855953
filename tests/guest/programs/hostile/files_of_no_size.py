"""No file may grow any more (RLIMIT_FSIZE), and the signal that tells of it is ignored.

problems: allowed
"""

import os
import resource
import signal
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []


def train(steps):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :2] * 2).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


train(5)
print("begun", flush=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
train(25)
with tempfile.TemporaryFile() as file:
    try:
        print(os.write(file.fileno(), b"x" * 4096))
        os.write(file.fileno(), b"x" * 4096)
    except OSError as error:
        print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
train(5)
print(losses[-1])
