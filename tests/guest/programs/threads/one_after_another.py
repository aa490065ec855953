"""Threads train one model each, one after another."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
losses = []
models = []


def work(k):
    torch.manual_seed(k)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
    models.append(model)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    x = torch.randn(64, 16)
    y = torch.randint(0, 4, (64,))
    for _ in range(60):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())


for k in range(4):
    t = threading.Thread(target=work, args=(k,), name=f"run-{k}")
    t.start()
    t.join()
print(losses[-1])
