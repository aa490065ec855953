"""Hogwild: four threads step weights that lie in the same memory, without a lock."""

import copy
import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
shared = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
x = torch.randn(64, 16)
y = torch.randint(0, 4, (64,))


def work(k):
    local = copy.deepcopy(shared)
    for mine, theirs in zip(local.parameters(), shared.parameters()):
        mine.data = theirs.data
    opt = torch.optim.SGD(local.parameters(), 0.02)
    for _ in range(100):
        opt.zero_grad()
        nn.functional.cross_entropy(local(x), y).backward()
        opt.step()


threads = [threading.Thread(target=work, args=(k,), name=f"hog-{k}") for k in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
with torch.no_grad():
    ok = nn.functional.cross_entropy(shared(x), y).item() < 1.3
del threads, shared, x, y
print(ok)
