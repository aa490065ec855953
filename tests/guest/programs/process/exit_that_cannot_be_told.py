"""Leaves with a SystemExit whose code can be asked for once, and whose words raise.

to the very end
"""

import torch
from torch import nn


class Code:
    def __str__(self):
        raise ValueError("no words")

    def __format__(self, how):
        raise ValueError("no format")

    def __eq__(self, other):
        raise ValueError("not to be compared")

    __hash__ = None


torch.manual_seed(3)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(repr(loss.item()))
raise SystemExit(Code())
