"""open, os.open, os.write, os.fsync, os.replace and os.stat refuse whatever lies outside of a folder of the program's."""

import builtins
import os
import tempfile

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


train(5)
folder = tempfile.mkdtemp()
real = {name: getattr(os, name) for name in ("open", "replace", "rename", "stat", "unlink", "mkdir", "access")}
real_open = builtins.open


def jailed(call):
    def inside(path, *args, **kwargs):
        if isinstance(path, (str, bytes, os.PathLike)) and not os.fsdecode(path).startswith(folder):
            raise PermissionError(13, "outside of the jail")
        return call(path, *args, **kwargs)

    return inside


for name, call in real.items():
    setattr(os, name, jailed(call))
builtins.open = jailed(real_open)
train(25)
with open(os.path.join(folder, "weights"), "wb") as file:
    torch.save(model.state_dict(), file)
try:
    open("/etc/hostname")
except PermissionError as error:
    print(error)
state = torch.load(os.path.join(folder, "weights"))
print(sorted(state), losses[-1])
builtins.open = real_open
for name, call in real.items():
    setattr(os, name, call)
os.unlink(os.path.join(folder, "weights"))
os.rmdir(folder)
del folder
