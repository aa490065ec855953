"""Weights in a file that is cut short under its mapping: whoever reads those of the unused layers dies of SIGBUS."""

import os
import tempfile

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.old = nn.Linear(64, 2048)
        self.register_buffer("front", torch.zeros(4))
        self.norm = nn.BatchNorm1d(4096)
        self.used = nn.Linear(64, 64)
        self.head = nn.Linear(64, 1)

    def forward(self, x, whole=False):
        if whole:
            self.norm(self.old(x).repeat(1, 2))
        return self.head(torch.relu(self.used(x)))


torch.manual_seed(0)
net = Net()
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "net.pt")
    torch.save({"old": net.old.state_dict(), "norm": net.norm.state_dict()}, path)
    size = os.path.getsize(path)
    state = torch.load(path, mmap=True)
    net.old.load_state_dict(state["old"], assign=True)
    net.norm.load_state_dict(state["norm"], assign=True)
    net.front = net.old.weight.detach()[0, :4]  # a view of the file
    net.mapped = state["old"]["weight"]
    copy = Net()
    copy.old, copy.norm = net.old, net.norm
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(40):
        x = torch.randn(16, 64)
        loss = net(x, whole=step < 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1:
            os.truncate(path, 4096)
        copy.eval()
        with torch.no_grad():
            print(step, loss.item(), copy(x).sum().item())
    net.eval()
    net(torch.randn(4, 64))
    os.truncate(path, size)
