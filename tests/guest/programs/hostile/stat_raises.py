"""Replaces os.stat by something that raises: python's own traceback module asks for it.

to the very end
problems: allowed
"""

import os

import torch
from torch import nn


def broken(*args, **kwargs):
    raise RuntimeError("no files here")


torch.manual_seed(3)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 8:
        os.stat = broken
print(repr(loss.item()))
raise ValueError("of its own")
