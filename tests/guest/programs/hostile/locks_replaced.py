"""threading.Lock, RLock, Thread and Event are replaced by counting versions, as a detector of deadlocks does."""

import threading

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []


def train(steps):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :2] * 2).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


real_lock, real_thread = threading.Lock, threading.Thread
made, started = [], []


class Watched:
    def __init__(self):
        self.inner = real_lock()
        made.append("lock")

    def acquire(self, *args, **kwargs):
        return self.inner.acquire(*args, **kwargs)

    def release(self):
        self.inner.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()


class Worker(real_thread):
    def start(self):
        started.append(self.name)
        super().start()


threading.Lock = Watched
threading.Thread = Worker
train(20)
lock = threading.Lock()
with lock:
    helper = threading.Thread(target=train, args=(5,), name="helper")
helper.start()
helper.join()
del helper
train(5)
print(made, started, len(losses), losses[-1])
