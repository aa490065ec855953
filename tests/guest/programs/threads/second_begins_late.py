"""A second training begins in a thread while the first has long been going, and goes on after it.

slow
"""

import threading

import torch
from torch import nn

torch.set_num_threads(1)


def make(seed):
    torch.manual_seed(seed)
    m = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    return m, torch.optim.Adam(m.parameters(), 1e-2), torch.randn(64, 16), torch.randint(0, 4, (64,))


def train(parts, steps, out):
    m, opt, x, y = parts
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        out.append(loss.item())


one, two = make(0), make(1)
losses, others = [], []
train(one, 300, losses)
t = threading.Thread(target=train, args=(two, 300, others), name="second")
t.start()
train(one, 300, losses)
t.join()
del t
print(losses[-1], others[-1])
