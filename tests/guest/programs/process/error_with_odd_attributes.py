"""Ended by an error whose `exceptions`, `code` and `__traceback__` are nothing like what python has by these names.

to the very end
"""

import torch
from torch import nn


class Failed(RuntimeError):
    exceptions = 5

    @property
    def code(self):
        raise AttributeError("no code")

    @property
    def filename(self):
        raise ValueError("no file")


torch.manual_seed(3)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(repr(loss.item()))
try:
    raise Failed("the first", ["of", "many"])
except Failed as first:
    first.exceptions = ["a", "b"]
    raise Failed("the second") from first
