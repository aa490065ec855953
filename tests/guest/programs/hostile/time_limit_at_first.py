"""A time limit that ends the very first call of a large model somewhere, and a training of that model afterwards."""

import signal

import torch
from torch import nn


class TimeUp(Exception):
    pass


def up(number, frame):
    raise TimeUp


signal.signal(signal.SIGALRM, up)
torch.manual_seed(3)
model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(200)], nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.ones(4, 8)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.012)
    while True:
        model(x)
except TimeUp:
    print("stopped")
for step in range(10):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(repr(loss.item()))
