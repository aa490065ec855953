"""A TorchDispatchMode that counts operations, and a TorchFunctionMode that logs calls, around some of the steps."""
from collections import Counter

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Ops(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.n = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Log(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.n = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.n[getattr(func, "__name__", "?")] += 1
        return func(*args, **(kwargs or {}))


torch.manual_seed(31)
net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ops, log = Ops(), Log()
for i in range(12):
    x = torch.randn(4, 3)
    if i % 2:
        with ops:
            loss = net(x).pow(2).mean()
    else:
        with log:
            loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(sorted(ops.n.items()), sorted(log.n.items()), loss.item())
