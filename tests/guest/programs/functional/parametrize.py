"""Parametrisations put on and taken off while training: symmetric, weight norm, spectral norm."""
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)


torch.manual_seed(26)
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
parametrize.register_parametrization(net[0], "weight", Symmetric())
parametrizations.weight_norm(net[2])
parametrizations.spectral_norm(net[4])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for i in range(16):
    if i == 8:
        parametrize.remove_parametrizations(net[2], "weight")
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
    x = torch.randn(6, 4)
    with parametrize.cached():
        l = (net(x) - x).pow(2).mean() + net[0].weight.sum() * 0.01
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1], torch.equal(net[0].weight, net[0].weight.T))
