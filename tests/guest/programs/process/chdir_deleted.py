"""The working directory is left, and then deleted under the program's feet."""
import os
import shutil
import tempfile

import torch
from torch import nn

torch.manual_seed(101)
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(12):
    l = net(torch.randn(3, 2)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    if i == 4:
        d = tempfile.mkdtemp()
        os.chdir(d)
        torch.save(net.state_dict(), "w.pt")
    if i == 8:
        shutil.rmtree(d)
del d
print(l.item())
