"""The limit of open files is lowered to what is open, so that nobody can open one more.

problems: allowed
"""

import os
import resource
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
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
lowest = os.open("/dev/null", os.O_RDONLY)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
try:
    os.open("/dev/null", os.O_RDONLY)
except OSError as error:
    print(error.strerror)
train(25)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
with tempfile.TemporaryFile() as file:
    torch.save(model.state_dict(), file)
    print(file.tell() > 0, losses[-1])
