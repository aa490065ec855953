"""Gradient accumulation with a last incomplete window, the loss divided, the scheduler stepped each micro-batch."""
import torch
from torch import nn

torch.manual_seed(46)
net = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.2, weight_decay=1e-2)
sch = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.3, total_steps=40)
acc = 4
ls = []
for i in range(26):
    x = torch.randn(4, 5)
    l = (net(x) - x.mean(1, keepdim=True)).pow(2).mean() / acc
    l.backward()
    sch.step()
    if (i + 1) % acc == 0:
        opt.step()
        opt.zero_grad()
    ls.append(l.item() * acc)
print(ls[-1], sch.get_last_lr(), net[0].weight.grad.norm().item())
