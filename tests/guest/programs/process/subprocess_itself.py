"""subprocess and os.system started in the loop, with inherited and with closed descriptors."""
import os
import subprocess
import sys

import torch
from torch import nn

torch.manual_seed(116)
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
outs = []
for i in range(8):
    l = net(torch.randn(3, 2)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    if i % 4 == 1:
        outs.append(subprocess.run(["sh", "-c", "ls /proc/self/fd | wc -l"], capture_output=True, text=True, close_fds=False).stdout)
        outs.append(os.system("exit 3"))
print(outs, l.item())
