"""sys.stdout is an object with nothing but write, print is decorated, and sys.stderr is None at the end."""

import builtins
import sys

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


plain = sys.stdout


class Narrow:
    def __init__(self):
        self.lines = 0

    def write(self, text):
        self.lines += text.count("\n")
        plain.write(text.upper())


sys.stdout = Narrow()
original_print = builtins.print


def numbered(*args, **kwargs):
    numbered.calls += 1
    original_print(numbered.calls, *args, **kwargs)


numbered.calls = 0
builtins.print = numbered
train(20)
print("trained", losses[-1])
train(10)
print("again", numbered.calls, sys.stdout.lines)
plain.flush()
sys.stderr = None
