"""A thread calls its model while the main one evaluates another, and takes its only step before that one trains."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.randn(32, 8), torch.randint(0, 2, (32,))
within, called, evaluated, stepped = (threading.Event() for _ in range(4))
losses = {}


class Waits(nn.Module):
    def forward(self, x):
        within.set()
        called.wait()
        return x


def make(*more):
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), *more, nn.Linear(16, 2))


def loss_of(model):
    return nn.functional.cross_entropy(model(x), y)


def once(model):
    opt = torch.optim.SGD(model.parameters(), 1e-2)
    within.wait()
    loss = loss_of(model)
    called.set()
    evaluated.wait()
    loss.backward()
    opt.step()
    losses["once"] = loss.item()
    stepped.set()


def on(model):
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    with torch.no_grad():
        loss_of(model)
    evaluated.set()
    stepped.wait()
    for _ in range(40):
        opt.zero_grad()
        loss = loss_of(model)
        loss.backward()
        opt.step()
    losses["on"] = loss.item()


thread = threading.Thread(target=once, args=(make(),), name="once")
thread.start()
on(make(Waits()))
thread.join()
print(losses)
