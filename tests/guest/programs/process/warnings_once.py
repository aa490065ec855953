"""Warnings of the program and of torch, each shown once for its line, recorded by catch_warnings too."""
import warnings

import torch
from torch import nn

torch.manual_seed(104)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sch = torch.optim.lr_scheduler.StepLR(opt, 3)
for i in range(10):
    y = net(torch.randn(4, 3))
    l = nn.functional.mse_loss(y, torch.zeros(4))
    opt.zero_grad()
    l.backward()
    if i == 0:
        sch.step()
    opt.step()
    warnings.warn("deprecated batch size", DeprecationWarning, stacklevel=1)
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        nn.functional.l1_loss(y.detach(), torch.zeros(4))
        warnings.warn("mine")
    lines = [(w.category.__name__, w.lineno) for w in got]
print(lines, l.item())
