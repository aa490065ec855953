"""DataLoaders with two worker processes, a worker_init_fn, persistent workers, a custom sampler and collate."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Data(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        return np.float32([i, i % 3, random.random() * 0]), {"y": i % 2}


class Odd(Sampler):
    def __init__(self):
        pass

    def __iter__(self):
        yield from torch.randperm(24).tolist()

    def __len__(self):
        return 24


def collate(items):
    return torch.from_numpy(np.stack([a for a, _ in items])) / 24, torch.tensor([b["y"] for _, b in items])


torch.manual_seed(114)
dl = DataLoader(Data(), 6, sampler=Odd(), num_workers=2, collate_fn=collate, persistent_workers=True,
                worker_init_fn=lambda k: random.seed(k), generator=torch.Generator().manual_seed(3))
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for epoch in range(2):
    for x, y in dl:
        l = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        l.backward()
        opt.step()
        ls.append(l.item())
print(ls)
del dl
