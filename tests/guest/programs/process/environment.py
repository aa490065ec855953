"""The environment cleared and changed, umask, locale, nice and resource limits set while training."""
import os
import resource

import torch
from torch import nn

torch.manual_seed(102)
keep = dict(os.environ)
os.environ.clear()
os.environ["HOME"] = "/nonexistent"
os.umask(0o077)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(12):
    os.environ[f"STEP_{i}"] = str(i)
    l = net(torch.randn(3, 2)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
print(sorted(os.environ)[:4], l.item())
