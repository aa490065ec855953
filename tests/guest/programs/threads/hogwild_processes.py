"""Hogwild with processes: two children, forked one after the other, step the weights that the parent shares."""

import multiprocessing

import torch
import torch.multiprocessing as mp
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
model.share_memory()
x, y = torch.randn(32, 6), torch.randint(0, 2, (32,))


def train(steps):
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return loss.item()


def child(steps, out):
    torch.set_num_threads(1)
    out.put(train(steps))


losses = []
context = mp.get_context("fork")
for _ in range(2):
    out = context.SimpleQueue()
    process = context.Process(target=child, args=(20, out))
    process.start()
    losses.append(out.get())
    process.join()
    assert process.exitcode == 0
losses.append(train(20))
del context, out, process
print(repr(losses), len(multiprocessing.active_children()))
