"""Outputs that are dataclasses, named tuples, an OrderedDict subclass with attribute access, generators and None."""
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Out:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


class ModelOutput(OrderedDict):
    touched = 0

    def __getattr__(self, k):
        try:
            return self[k]
        except KeyError as e:
            raise AttributeError(k) from e

    def items(self):
        ModelOutput.touched += 1
        torch.rand(1)
        return super().items()

    def __iter__(self):
        ModelOutput.touched += 1
        return super().__iter__()


Pair = namedtuple("Pair", "a b")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g, self.h = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)

    def part(self, x):
        yield self.f(x)
        yield self.g(x)

    def forward(self, batch):
        p = Pair(*self.part(batch.x))
        logits = self.h(p.a * p.b)
        return ModelOutput(loss=(logits - batch.y).pow(2).mean(), out=Out(logits), pair=p)


torch.manual_seed(73)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(20):
    x = torch.randn(8, 3)
    out = net(ModelOutput(x=x, y=x.sum(1, keepdim=True)))
    opt.zero_grad()
    out.loss.backward()
    opt.step()
print(ModelOutput.touched, out.loss.item())
