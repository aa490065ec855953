"""Iterative magnitude pruning by torch.nn.utils.prune, made permanent half-way."""
import torch
from torch import nn
from torch.nn.utils import prune

torch.manual_seed(28)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
zeros = []
for i in range(20):
    if i in (4, 8):
        prune.global_unstructured([(net[0], "weight"), (net[2], "weight")], prune.L1Unstructured, amount=0.3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
    if i == 14:
        prune.remove(net[0], "weight")
        prune.random_structured(net[2], "weight", amount=1, dim=1)
    x = torch.randn(12, 8)
    l = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    l.backward()
    opt.step()
    zeros.append(int((net[0].weight == 0).sum()))
print(zeros, l.item())
