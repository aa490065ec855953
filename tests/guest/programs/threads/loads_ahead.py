"""A thread makes batches ahead with numpy's and Python's global generators, normalising them with a module."""

import queue
import random
import threading

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
np.random.seed(0)
random.seed(0)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x):
        return x * self.weight


scale = Scale()
batches = queue.Queue(4)


def load():
    for _ in range(150):
        x = torch.from_numpy(np.random.randn(32, 16).astype("float32")) + random.random()
        batches.put((scale(x).detach(), torch.from_numpy(np.random.randint(0, 4, 32))))


t = threading.Thread(target=load, name="loader")
t.start()
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(model.parameters(), 1e-2)
losses = []
for _ in range(150):
    x, y = batches.get()
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
t.join()
del batches
print(losses[-1], np.random.rand(), random.random())
