"""Two trainings take turns by a lock of the program's, which one still holds as the main thread ends."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
turn = threading.Lock()
models = []
for k in range(2):
    torch.manual_seed(k)
    models.append(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)))
x = torch.randn(16, 8)
losses = [[], []]


def train(k, steps):
    opt = torch.optim.Adam(models[k].parameters(), 1e-3)
    for _ in range(steps):
        with turn:
            opt.zero_grad()
            loss = (models[k](x) - x[:, :1]).pow(2).mean()
            loss.backward()
            opt.step()
            losses[k].append(loss.item())


other = threading.Thread(target=train, args=(1, 60))
other.start()
train(0, 60)
other.join()
print(repr(losses[0][-1]), repr(losses[1][-1]))
held = threading.Event()


def holds():
    turn.acquire()
    held.set()
    threading.Event().wait()  # for ever


threading.Thread(target=holds, daemon=True).start()
held.wait()
del turn, other, held
