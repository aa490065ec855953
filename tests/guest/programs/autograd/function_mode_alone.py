"""A TorchFunctionMode that counts the functions of torch, active from the first backward pass to the last step."""

import collections

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: collections.Counter[str] = collections.Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen[getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses: list[float] = []
with Functions() as functions:
    for step in range(30):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :2]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(repr(losses[-1]), sorted(functions.seen.items()), sep="\n")
