"""Nested tensors of both layouts as the inputs of linear layers."""
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(122)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
ls = []
for i in range(10):
    parts = [torch.randn(k, 3) for k in (2, 5, 3)]
    nt = torch.nested.nested_tensor(parts, layout=torch.jagged if i % 2 else torch.strided)
    out = net(nt)
    l = sum(o.pow(2).mean() for o in out.unbind())
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls)
del nt, out
