"""Clears sys.path and what is loaded of a package that others need, and has a module of that name."""

import sys
import types

import torch
from torch import nn

torch.manual_seed(3)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(repr(loss.item()))
sys.modules["rich"] = types.ModuleType("rich")
sys.path.clear()
