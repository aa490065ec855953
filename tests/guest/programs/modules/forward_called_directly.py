"""model.forward(x) called directly, monkey patched per instance, and bound as a partial."""
import functools
import types

import torch
from torch import nn

torch.manual_seed(74)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
old = net[0].forward
net[0].forward = functools.partial(lambda f, x: f(x) * 1.5, old)
net[2].forward = types.MethodType(lambda self, x: nn.functional.linear(x, self.weight * 0.9, self.bias), net[2])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for i in range(20):
    x = torch.randn(5, 3)
    l = (net.forward(x) - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
    if i == 10:
        del net[0].forward
print(ls[-1])
