"""Exit handlers raise, run in their order, take each other away, train once more and clear the list of handlers."""

import atexit

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


train(20)


def last():
    print("last", len(losses))
    atexit._clear()


def trains():
    train(5)
    print("trained", losses[-1])


def never():
    print("never")


def raises():
    atexit.unregister(never)
    raise ValueError("on the way out")


for handler in (last, never, trains, raises):
    atexit.register(handler)
print("over", losses[-1])
