"""Inputs of a class whose __torch_function__ adds noise from the global generator to every linear layer."""
import torch
from torch import nn


class Noisy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
            if func is nn.functional.linear:
                out = out + 0.01 * torch.randn(out.shape)
        return out.as_subclass(cls) if isinstance(out, torch.Tensor) and func is not torch.Tensor.backward else out


torch.manual_seed(125)
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
ls = []
for i in range(40):
    x = torch.randn(16, 3)
    y = net(x.as_subclass(Noisy)).as_subclass(torch.Tensor)
    l = (y - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1])
