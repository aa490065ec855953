"""gc.callbacks raise, garbage is frozen, and what collections of the program find is counted."""

import gc

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




class Knot:
    alive = 0

    def __init__(self):
        self.me = self
        Knot.alive += 1

    def __del__(self):
        Knot.alive -= 1


def watch(phase, info):
    if phase == "stop" and info["generation"] == 2:
        seen.append(Knot.alive)


seen = []
gc.disable()
gc.callbacks.append(watch)
for i in range(10):
    train(3)
    Knot()
    if i % 3 == 2:
        gc.collect()
gc.freeze()
train(3)
frozen = gc.get_freeze_count() > 0
gc.unfreeze()
gc.enable()
gc.set_threshold(20, 1000, 1000)
train(3)
gc.set_threshold(700, 10, 10)
gc.callbacks.remove(watch)
print(seen[:3], frozen, losses[-1])
seen = None
