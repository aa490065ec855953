"""A thread scores the model again and again while the main thread trains it."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(model.parameters(), 0.05)
x = torch.randn(64, 16)
y = torch.randint(0, 4, (64,))
stop = threading.Event()
counts = []


def score():
    n = 0
    while not stop.is_set():
        with torch.no_grad():
            model(x).argmax(1)
        nn.functional.cross_entropy(model(x), y).item()  # gradients left on
        n += 1
    counts.append(n)


t = threading.Thread(target=score, name="scorer")
t.start()
losses = []
for _ in range(300):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
stop.set()
t.join()
del counts
print(losses[-1])
