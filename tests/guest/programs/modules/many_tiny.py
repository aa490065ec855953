"""Four hundred tiny layers and a nesting sixty deep.

slow
"""
import torch
from torch import nn

torch.manual_seed(68)
wide = nn.ModuleList([nn.Linear(1, 1) for _ in range(400)])
deep = nn.Linear(2, 2)
for _ in range(60):
    deep = nn.Sequential(deep)
opt = torch.optim.SGD([*wide.parameters(), *deep.parameters()], lr=0.01)
ls = []
for i in range(5):
    x = torch.randn(3, 2)
    h = deep(x)
    y = sum(l(h[:, :1]) for l in wide) / 400
    loss = (y - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ls.append(loss.item())
print(ls)
