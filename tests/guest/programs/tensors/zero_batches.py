"""Batches of size zero among the others: losses that are NaN, gradients of zero, empty inputs everywhere."""
import torch
from torch import nn

torch.manual_seed(130)
net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for i in range(15):
    n = 0 if i % 4 == 3 else 5
    x = torch.randn(n, 1, 4, 4)
    out = net(x)
    l = nn.functional.cross_entropy(out, torch.zeros(n, dtype=torch.long), reduction="sum")
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls)
