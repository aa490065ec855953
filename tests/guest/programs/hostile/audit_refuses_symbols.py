"""An audit hook refuses that functions of libraries are looked up from now on."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(steps):
    for _ in range(steps):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def refuse(event, args):
    if event == "ctypes.dlsym":
        raise PermissionError("refused by the sandbox")


print(train(10))
sys.addaudithook(refuse)
print(train(10))
