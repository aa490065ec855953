"""os._exit in the main thread while a daemon thread trains on."""

import os
import sys
import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(8, 1)
x = torch.randn(16, 8)
enough = threading.Event()


def train():
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(10**9):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()
        if step == 50:
            enough.set()


threading.Thread(target=train, daemon=True).start()
enough.wait()
print("enough")
sys.stdout.flush()
os._exit(3)
