"""A metaclass that wraps every forward, __slots__, a registry, __init_subclass__ and __new__ tricks."""
import functools

import torch
from torch import nn

REG = {}


class Meta(type):
    def __call__(cls, *a, **k):
        obj = super().__call__(*a, **k)
        REG[cls.__name__] = REG.get(cls.__name__, 0) + 1
        return obj

    def __new__(mcs, name, bases, ns):
        if "forward" in ns:
            f = ns["forward"]

            @functools.wraps(f)
            def forward(self, *a, **k):
                self.__dict__.setdefault("count", 0)
                self.count += 1
                return f(self, *a, **k)

            ns["forward"] = forward
        return super().__new__(mcs, name, bases, ns)


class Base(nn.Module, metaclass=Meta):
    __slots__ = ("fast",)

    def __init_subclass__(cls, act=torch.relu, **k):
        super().__init_subclass__(**k)
        cls.act = staticmethod(act)


class Layer(Base, act=torch.tanh):
    def __init__(self, i, o):
        super().__init__()
        self.fast = True
        self.lin = nn.Linear(i, o)

    def forward(self, x, *, skip=False):
        return x if skip else self.act(self.lin(x))


torch.manual_seed(67)
net = nn.Sequential(Layer(3, 4), Layer(4, 4), Layer(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(12):
    l = net[2](net[1](net[0](torch.randn(5, 3)), skip=bool(i % 2))).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
print(REG, [m.count for m in net], l.item())
