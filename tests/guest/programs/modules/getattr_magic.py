"""A model with __getattr__, __setattr__ and __dir__ of its own, which counts what is asked of it."""
import torch
from torch import nn


class Magic(nn.Module):
    asked = []

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 1)})

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            Magic.asked.append(name)
            if name in self.inner:
                return self.inner[name]
            raise

    def __setattr__(self, name, value):
        if name.startswith("set_"):
            Magic.asked.append(name)
        super().__setattr__(name, value)

    def __dir__(self):
        Magic.asked.append("dir")
        return super().__dir__()

    def forward(self, x):
        self.set_something = x.shape
        return self.b(torch.relu(self.a(x)))


torch.manual_seed(61)
net = Magic()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(15):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
print(len(Magic.asked), sorted(set(Magic.asked)), l.item())
