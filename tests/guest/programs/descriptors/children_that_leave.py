"""Forks children in the middle of the training that end as programs do, with exit handlers and a garbage collection.

slow
"""

import atexit
import gc
import os
import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
atexit.register(lambda here=os.getpid(): print("bye from the", "parent" if os.getpid() == here else "child", flush=True))
for step in range(30):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    loss = (model(x) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 10 == 5:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            gc.collect()
            sys.exit(step)
        print("a child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("last loss", repr(losses[-1]))
del child  # another at each run
