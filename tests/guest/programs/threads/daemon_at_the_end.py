"""The program ends while a daemon thread still trains a model of its own."""

import atexit
import threading

import torch
from torch import nn

torch.set_num_threads(1)


def make(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
stop, stopped = threading.Event(), threading.Event()


def train(model, steps):
    opt = torch.optim.SGD(model.parameters(), 0.05)
    told = []
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        told.append(loss.item())
        if stop.is_set() and steps > 1000:
            break
    return told


def forever():
    train(other, 10**9)
    stopped.set()


model, other = make(0), make(1)
thread = threading.Thread(target=forever, daemon=True)
thread.start()
losses = train(model, 200)
atexit.register(lambda: (stop.set(), stopped.wait(5)))  # else the interpreter would end under it
del thread, other
print(repr(losses[-1]))
