"""Two threads each fill the gradient of half a batch, one after the other; the main thread steps."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(model.parameters(), 0.1)
x = torch.randn(64, 16)
y = torch.randint(0, 4, (64,))


def half(a):
    loss = nn.functional.cross_entropy(model(x[a]), y[a]) / 2
    loss.backward()
    return loss.item()


losses = []
with ThreadPoolExecutor(1, "first") as p, ThreadPoolExecutor(1, "second") as q:
    for _ in range(100):
        opt.zero_grad()
        losses.append(p.submit(half, slice(0, 32)).result() + q.submit(half, slice(32, 64)).result())
        opt.step()
print(losses[-1])
