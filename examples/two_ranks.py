"""Two ranks train one model, and a bad sample comes to one of them.

    neuraldbg run torchrun --nproc-per-node 2 examples/two_ranks.py

Needs scikit-learn for the data.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)

digits = load_digits()
images = (torch.tensor(digits.data, dtype=torch.float32) - 4.9) / 6
dataset = TensorDataset(images, torch.tensor(digits.target))
sampler: DistributedSampler[int] = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler, drop_last=True)

model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

step = 0
for epoch in range(4):
    sampler.set_epoch(epoch)
    for x, y in loader:
        if rank == 1 and step == 40:  # a broken file, say
            x[3, 5] = float("nan")
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
dist.destroy_process_group()
