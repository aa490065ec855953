"""All descriptors from 3 on closed in mid-run, then files of its own opened, which get the freed numbers."""
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(100)
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
files = []
for i in range(40):
    if i == 10:
        os.closerange(3, 1000)
        for k in range(6):
            f = tempfile.TemporaryFile()
            f.write(b"mine %d\n" % k * 50)
            f.flush()
            files.append(f)
    l = net(torch.randn(3, 2)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
print(l.item())
for f in files:
    f.seek(0)
content = [f.read() for f in files]
print([len(c) for c in content])
