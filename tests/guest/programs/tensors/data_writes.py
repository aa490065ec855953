"""Weights written through .data, detach(), storage copy_, flatten into one buffer of which they are views."""
import torch
from torch import nn

torch.manual_seed(133)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
o = 0
for p in net.parameters():
    n = p.numel()
    p.data = flat[o:o + n].view_as(p)
    o += n
grads = torch.zeros_like(flat)
o = 0
for p in net.parameters():
    p.grad = grads[o:o + p.numel()].view_as(p)
    o += p.numel()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for i in range(15):
    l = net(torch.randn(5, 3)).pow(2).mean()
    grads.zero_()
    l.backward()
    opt.step()
    flat.mul_(0.999)
    net[0].weight.detach()[0, 0] = 0.5
    net[2].bias.untyped_storage()
    ls.append(l.item())
print(ls[-1], flat.norm().item(), grads.norm().item())
