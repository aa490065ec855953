"""Several generators: of torch, numpy and python, forked, saved and put back around the steps."""
import random

import numpy as np
import torch
from torch import nn

random.seed(1), np.random.seed(2), torch.manual_seed(3)
g, rs, r = torch.Generator().manual_seed(4), np.random.default_rng(5), random.Random(6)
net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.4), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
ls = []
for i in range(15):
    x = torch.randn(4, 3, generator=g) + float(rs.normal()) + r.random() + random.random() + np.random.rand()
    with torch.random.fork_rng():
        torch.manual_seed(i)
        noise = torch.rand(4, 3)
    s = torch.get_rng_state()
    a = net(x + noise)
    torch.set_rng_state(s)
    b = net(x + noise)
    l = a.pow(2).mean() + (a - b).abs().max()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1], torch.rand(1).item(), random.random(), np.random.rand())
