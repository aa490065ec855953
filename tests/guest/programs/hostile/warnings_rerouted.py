"""warnings.showwarning, formatwarning and the filters are the program's, and a warning is counted in each step."""

import warnings

import torch
from torch import nn

shown = []


def show(message, category, filename, lineno, file=None, line=None):
    shown.append((str(message), category.__name__, lineno))


warnings.showwarning = show
warnings.formatwarning = lambda *args, **kwargs: "never"
warnings.simplefilter("always")

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


for i in range(25):
    train(1)
    warnings.warn(f"step {i % 5}")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    train(5)
    warnings.warn("inside")
print(len(shown), shown[-1], [str(one.message) for one in caught], losses[-1])
