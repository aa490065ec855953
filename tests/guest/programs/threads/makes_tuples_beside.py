"""A thread that makes tuples from generators, with other threads getting a turn in the midst, beside a training."""

import threading
import time

import torch
from torch import nn

over = threading.Event()
died: list[str] = []


def slowly():
    for i in range(12):
        time.sleep(0.0002)
        yield i


def make() -> None:
    try:
        while not over.is_set():
            assert tuple(slowly()) == tuple(range(12))
    except BaseException as error:
        died.append(repr(error))


torch.manual_seed(0)
makers = [threading.Thread(target=make) for _ in range(2)]
for maker in makers:
    maker.start()
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
loose = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses: list[float] = []
for step in range(60):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    loss = (model(x) + loose - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
over.set()
for maker in makers:
    maker.join()
print(repr(losses[-1]), died)
del makers, maker
