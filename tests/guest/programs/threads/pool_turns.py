"""Workers of a pool take turns with one model: each step is a task."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(model.parameters(), 1e-2)
x = torch.randn(64, 16)
y = torch.randint(0, 4, (64,))


def step(_):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


import threading

losses = []
barrier = threading.Barrier(4)
with ThreadPoolExecutor(4, thread_name_prefix="worker") as pool:
    list(pool.map(lambda _: barrier.wait(), range(4)))
    for i in range(200):
        losses.append(pool.submit(step, i).result())
print(losses[-1])
