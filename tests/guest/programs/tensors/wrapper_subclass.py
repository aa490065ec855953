"""A wrapper subclass without memory of its own (_make_wrapper_subclass) used for activations and a parameter."""
import torch
from torch import nn
from torch.utils._pytree import tree_map


class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, inner, scale):
        r = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)
        r.inner, r.scale = inner, scale
        return r

    def __repr__(self):
        return "Scaled()"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        un = lambda t: t.inner * t.scale if isinstance(t, Scaled) else t
        return tree_map(lambda t: Scaled(t, 1.0) if isinstance(t, torch.Tensor) else t,
                        func(*tree_map(un, args), **tree_map(un, kwargs or {})))


torch.manual_seed(126)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for i in range(12):
    x = torch.randn(5, 3)
    out = net(Scaled(x, 2.0))
    l = out.pow(2).mean()
    opt.zero_grad()
    l.backward()
    for p in net.parameters():
        if isinstance(p.grad, Scaled):
            p.grad = p.grad.inner
    opt.step()
    ls.append(l.inner.item())
del out, l
print(ls)
