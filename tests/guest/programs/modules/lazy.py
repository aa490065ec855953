"""Lazy modules that get their shapes in the first pass, after the optimizer has been made."""
import torch
from torch import nn

torch.manual_seed(60)
net = nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
ls = []
for i in range(12):
    x = torch.randn(5, 3, 7)
    l = nn.functional.cross_entropy(net(x), (x.mean((1, 2)) > 0).long())
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(net, ls[-1])
