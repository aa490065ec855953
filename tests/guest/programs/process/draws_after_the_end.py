"""Draws numbers in an exit handler, and in a thread that trains on after the main one has ended.

to the very end
"""

import atexit
import random
import threading

import torch
from torch import nn

random.seed(5)
torch.manual_seed(3)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(steps):
    for step in range(steps):
        loss = model(torch.randn(8, 4) * random.random()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(repr(loss.item()), random.random(), flush=True)


atexit.register(lambda: print("at the end", random.random(), flush=True))
train(12)
main = threading.main_thread()
threading.Thread(target=lambda: (main.join(), train(12))).start()
