"""An audit hook, which nobody can take away again, refuses databases, child processes and sockets.

problems: allowed
"""

import sys


def refuse(event, args):
    if event in {"sqlite3.connect", "subprocess.Popen", "socket.connect", "os.system"}:
        raise RuntimeError(f"{event} is not allowed in here")


sys.addaudithook(refuse)

import sqlite3  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

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


train(25)
try:
    sqlite3.connect(":memory:")
except RuntimeError as error:
    print(error)
print(losses[-1])
