"""A new thread for each step of the training."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(model.parameters(), 1e-2)
x = torch.randn(64, 16)
y = torch.randint(0, 4, (64,))
losses = []


def step():
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())


for _ in range(150):
    t = threading.Thread(target=step)
    t.start()
    t.join()
del t
print(losses[-1])
