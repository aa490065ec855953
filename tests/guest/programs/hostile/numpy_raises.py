"""numpy raises at every overflow and every NaN, and its generator and its functions are replaced.

errors: allowed
"""

import numpy as np
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


np.seterr(all="raise")
mean, drawn = np.mean, np.random.rand(3).tolist()


def counted(*args, **kwargs):
    counted.calls += 1
    return mean(*args, **kwargs)


counted.calls = 0
np.mean = counted
np.unique = np.sort = np.bincount = None
train(20)
with torch.no_grad():
    model[0].weight.mul_(1e30)
train(10)
try:
    np.float64(1e308) * 10
except FloatingPointError as error:
    print(error)
print(counted.calls, losses[-1], drawn)
