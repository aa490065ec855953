"""Folds of a cross validation are trained by a pool, two at a time; each worker trains several models."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

torch.set_num_threads(1)
x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
y = (x.sum(1) > 0).long()
models = []
for k in range(6):
    torch.manual_seed(k)
    models.append(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))


def fold(k):
    keep = torch.arange(60) % 6 != k
    opt = torch.optim.Adam(models[k].parameters(), 1e-2)
    for _ in range(25):
        opt.zero_grad()
        nn.functional.cross_entropy(models[k](x[keep]), y[keep]).backward()
        opt.step()
    with torch.no_grad():
        return nn.functional.cross_entropy(models[k](x[~keep]), y[~keep]).item()


with ThreadPoolExecutor(2) as pool:
    scores = list(pool.map(fold, range(6)))
print(repr(scores))
