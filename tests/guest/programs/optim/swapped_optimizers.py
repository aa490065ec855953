"""The optimizer class changes every few steps; the old ones are dropped and collected; fused and foreach variants."""
import gc

import torch
from torch import nn

torch.manual_seed(48)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
makers = [
    lambda p: torch.optim.SGD(p, lr=0.01, fused=True),
    lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    lambda p: torch.optim.Adamax(p),
    lambda p: torch.optim.NAdam(p),
    lambda p: torch.optim.RAdam(p, decoupled_weight_decay=True),
    lambda p: torch.optim.Rprop(p),
    lambda p: torch.optim.ASGD(p),
    lambda p: torch.optim.Adadelta(p, maximize=False),
]
ls = []
for make in makers:
    opt = make(net.parameters())
    for _ in range(4):
        x = torch.randn(6, 3)
        l = (net(x) - x.amax(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        ls.append(l.item())
    gc.collect()
print(ls)
