"""Submodules replaced, wrapped, deleted and added while it trains; a LoRA adapter put over a linear layer."""
import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base, r=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(base.in_features, r) * 0.1)
        self.B = nn.Parameter(torch.zeros(r, base.out_features))

    def forward(self, x):
        return self.base(x) + x @ self.A @ self.B


torch.manual_seed(64)
net = nn.Sequential()
net.add_module("in", nn.Linear(4, 6))
net.add_module("act", nn.ReLU())
net.add_module("out", nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
ls = []
for i in range(25):
    if i == 5:
        net.act = nn.SiLU()
    if i == 10:
        setattr(net, "in", LoRA(getattr(net, "in")))
        opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.05)
    if i == 15:
        net.insert(1, nn.LayerNorm(6))
        opt.add_param_group({"params": net[1].parameters()})
    if i == 20:
        del net[2]
    x = torch.randn(8, 4)
    l = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(net, ls[-1])
