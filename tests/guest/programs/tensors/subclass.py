"""A Tensor subclass with __torch_function__ that carries a name and counts, as inputs and as parameters."""
import torch
from torch import nn

calls = []


class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        calls.append(getattr(func, "__name__", "?"))
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out


torch.manual_seed(124)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
net[2].weight = nn.Parameter(net[2].weight.detach().as_subclass(Named))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(12):
    x = torch.randn(5, 3).as_subclass(Named)
    l = net(x).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
n = len(calls)
print(n, sorted(set(calls)), l.item())
