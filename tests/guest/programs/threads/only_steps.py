"""A thread of its own steps the optimizer; the main thread runs forward and backward."""

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


def stepper():
    while jobs.get():
        opt.step()
        opt.zero_grad()
        done.put(True)


t = threading.Thread(target=stepper, name="stepper")
t.start()
losses = []
for _ in range(120):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    jobs.put(True)
    done.get()
    losses.append(loss.item())
jobs.put(False)
t.join()
del jobs, done
print(losses[-1])
