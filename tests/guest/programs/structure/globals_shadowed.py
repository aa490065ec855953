"""A script whose global names shadow modules and builtins: list, sum, torch itself, time, os, sys.modules entries."""
import sys
import types

import torch as _t

list, sum, id, type_ = [], 0.0, 7, "x"
fake = types.ModuleType("time")
fake.time = lambda: 0.0
_t.manual_seed(148)
torch = "not a module"
net = _t.nn.Linear(3, 1)
opt = _t.optim.SGD(net.parameters(), lr=0.1)
for step in range(12):
    x = _t.randn(4, 3)
    l = net(x).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    sum += l.item()
    list.append(sum)
print(list[-1], torch)
