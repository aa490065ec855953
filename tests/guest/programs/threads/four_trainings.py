"""Four threads train four models at once, each with an optimizer of its own."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
losses = [[] for _ in range(4)]
models = []
for k in range(4):
    torch.manual_seed(k)
    models.append(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)))
data = [torch.randn(64, 16, generator=torch.Generator().manual_seed(k)) for k in range(4)]
target = [torch.randint(0, 4, (64,), generator=torch.Generator().manual_seed(k)) for k in range(4)]


def work(k):
    opt = torch.optim.Adam(models[k].parameters(), 1e-3)
    for _ in range(150):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(models[k](data[k]), target[k])
        loss.backward()
        opt.step()
        losses[k].append(loss.item())


threads = [threading.Thread(target=work, args=(k,), name=f"trainer-{k}") for k in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print([l[-1] for l in losses])
