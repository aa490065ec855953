"""Ended by an exception that derives from KeyboardInterrupt: python ends with status 1 then, and not by the signal.

to the very end
"""

import torch
from torch import nn


class Enough(KeyboardInterrupt):
    pass


torch.manual_seed(3)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
    if step == 9:
        raise Enough("ten steps")
