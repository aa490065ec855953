"""Gradual unfreezing: parameters frozen, unfrozen, groups added with rates of their own, tied mid-run."""
import torch
from torch import nn

torch.manual_seed(47)
net = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 20, bias=False))
for p in net[:4].parameters():
    p.requires_grad = False
opt = torch.optim.AdamW(net[4].parameters(), lr=1e-2)
ls = []
for i in range(24):
    if i == 6:
        net[2].requires_grad_(True)
        opt.add_param_group({"params": net[2].parameters(), "lr": 1e-3, "name": "middle"})
    if i == 12:
        net[0].weight.requires_grad = True
        opt.add_param_group({"params": [net[0].weight], "weight_decay": 0.0})
    if i == 18:
        net[4].weight = net[0].weight
    t = torch.randint(0, 20, (6, 4))
    l = nn.functional.cross_entropy(net(t), t[:, 0])
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1], len(opt.param_groups), net[4].weight is net[0].weight)
