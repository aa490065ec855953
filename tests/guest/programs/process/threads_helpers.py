"""Threads beside the training: a prefetcher with a queue, a timer, a logger that runs longer than the main thread."""
import queue
import threading
import time

import torch
from torch import nn

torch.manual_seed(106)
q = queue.Queue(2)


def produce():
    g = torch.Generator().manual_seed(1)
    for _ in range(15):
        q.put(torch.randn(4, 3, generator=g))
    q.put(None)


threading.Thread(target=produce, name="prefetch").start()
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
while (x := q.get()) is not None:
    l = (net(x) - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())


def late():
    time.sleep(0.3)
    print("late", ls[-1])


threading.Thread(target=late, name="late").start()
print("main is done")
