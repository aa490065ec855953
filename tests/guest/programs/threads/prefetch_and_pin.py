"""A DataLoader that would pin memory, behind a thread of the program's that fetches two batches ahead."""

import queue
import threading
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")  # there may be no device to pin for
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(96, 8)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 16, shuffle=True, pin_memory=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters(), 1e-2)


def ahead(source):
    batches, end = queue.Queue(2), object()

    def fetch():
        for batch in source:
            batches.put(batch)
        batches.put(end)

    threading.Thread(target=fetch, daemon=True).start()
    yield from iter(batches.get, end)


losses = []
for epoch in range(12):
    for bx, by in ahead(loader):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(bx), by)
        loss.backward()
        opt.step()
        losses.append(loss.item())
del loader
print(len(losses), repr(losses[-1]))
