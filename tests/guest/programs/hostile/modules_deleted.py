"""Modules of the standard library and of torch are taken out of sys.modules in mid-run, and others put in their place."""

import sys
import types

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
for name in ("json", "sqlite3", "traceback", "threading", "queue", "contextlib", "warnings", "torch.nn.functional",
             "torch.optim.lr_scheduler", "numpy.linalg", "inspect", "linecache"):
    sys.modules.pop(name, None)
train(10)
sys.modules["traceback"] = types.ModuleType("traceback")
sys.modules["json"] = None
train(10)
try:
    import json
except ImportError as error:
    print(type(error).__name__)
del sys.modules["json"]
print(losses[-1])
