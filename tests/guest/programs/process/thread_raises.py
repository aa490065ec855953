"""A thread that raises, with threading.excepthook of the program; another evaluates the model now and then."""
import threading

import torch
from torch import nn

torch.manual_seed(107)
told = []
threading.excepthook = lambda a: told.append((a.exc_type.__name__, a.thread.name))
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
evals = []


def check(n):
    with torch.no_grad():
        evals.append(net(torch.ones(1, 3)).item())
    if n % 4 == 3:
        raise RuntimeError("evaluation failed")


for i in range(12):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    t = threading.Thread(target=check, args=(i,), name=f"eval-{i}")
    t.start()
    t.join()
print(told, evals[-1])
