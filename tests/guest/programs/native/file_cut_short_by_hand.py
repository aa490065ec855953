"""As file_cut_short, and the weights are updated by hand: a look at them tells whether a step was taken."""

import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
old, used = nn.Linear(64, 4096), nn.Linear(64, 1)
net = nn.ModuleDict({"old": old, "used": used})
net.forward = lambda x: used(x)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "net.pt")
    torch.save(old.state_dict(), path)
    size = os.path.getsize(path)
    old.load_state_dict(torch.load(path, mmap=True), assign=True)
    for step in range(12):
        loss = net(torch.randn(16, 64)).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for parameter in used.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
        print(step, loss.item())
        if step == 3:
            os.truncate(path, 4096)
    os.truncate(path, size)
