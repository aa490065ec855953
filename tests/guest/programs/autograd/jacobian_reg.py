"""Regularising by torch.autograd.functional.jacobian and a Hessian-vector product."""
import torch
from torch import nn
from torch.autograd.functional import hvp, jacobian

torch.manual_seed(14)
net = nn.Sequential(nn.Linear(3, 5), nn.Softplus(), nn.Linear(5, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
vals = []
for i in range(8):
    x = torch.randn(3)
    J = jacobian(net, x, create_graph=True)
    loss = J.pow(2).sum() + net(x).pow(2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    _, hv = hvp(lambda z: net(z).sum(), x, torch.ones(3))
    vals.append((loss.item(), hv.norm().item()))
print(vals)
