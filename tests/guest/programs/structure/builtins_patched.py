"""builtins patched by the program: print, open, isinstance, len and __import__ count their callers."""
import builtins

import torch
from torch import nn

n = {"isinstance": 0, "len": 0}
real = builtins.isinstance, builtins.len, builtins.print
mine = __file__


def counted_len(x):
    n["len"] += 1
    return real[1](x)


torch.manual_seed(147)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
lines = []
builtins.print = lambda *a, **k: lines.append(a)
for i in range(10):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    print(i, l.item())
builtins.print = real[2]
print(lines)
