"""After its setup a program forbids every further import, by a finder in front and a builtins.__import__ of its own.

problems: allowed
"""

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


train(3)


class Shut:
    asked = []

    def find_spec(self, name, path=None, target=None):
        if name.startswith("forbidden"):
            self.asked.append(name)
        raise ImportError(f"{name}: the doors are shut")


plain = builtins.__import__


def guarded(name, *args, **kwargs):
    if name not in sys.modules and name.partition(".")[0] not in sys.builtin_module_names:
        raise ImportError(f"{name}: not any more")
    return plain(name, *args, **kwargs)


sys.meta_path.insert(0, Shut())
builtins.__import__ = guarded
train(25)
for name in ("forbidden", "colorsys"):
    try:
        __import__(name)
    except ImportError as error:
        print(error)
train(5)
print(losses[-1], Shut.asked)
