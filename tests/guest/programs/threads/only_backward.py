"""The main thread computes the loss and steps; another thread does nothing but call backward."""

import queue
import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(model.parameters(), 1e-2)
x = torch.randn(64, 16)
y = torch.randint(0, 4, (64,))
jobs, done = queue.Queue(), queue.Queue()


def differentiate():
    while True:
        loss = jobs.get()
        if loss is None:
            return
        loss.backward()
        done.put(True)


t = threading.Thread(target=differentiate, name="differ")
t.start()
losses = []
for _ in range(120):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    jobs.put(loss)
    done.get()
    opt.step()
    losses.append(loss.item())
jobs.put(None)
t.join()
del jobs, done
print(losses[-1])
