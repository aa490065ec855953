"""Training inside a TorchDispatchMode and a TorchFunctionMode that count and log each operation, and under a device."""

import collections

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: collections.Counter[str] = collections.Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen[getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)
losses: list[float] = []
told: list[str] = []
for part in range(3):
    operations, functions = Operations(), Functions()
    mode = (operations, functions, torch.device("cpu"))[part]
    with mode:
        for step in range(40):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            loss = (model(x) - x[:, :2]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    told.append(repr(sorted(operations.seen.items())))
    told.append(repr(sorted(functions.seen.items())))
print(repr(losses[-1]), *told, sep="\n")
