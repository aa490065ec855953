"""A model without parameters beside one whose parameters are all 0-d, empty or unused."""
import torch
from torch import nn


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(-1, keepdim=True)


class Scalars(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.5))
        self.b = nn.Parameter(torch.zeros(()))
        self.empty = nn.Parameter(torch.zeros(0, 4))
        self.unused = nn.Parameter(torch.ones(3))
        self.register_parameter("none", None)
        self.register_buffer("nothing", None)

    def forward(self, x):
        return self.a * x + self.b + self.empty.sum()


torch.manual_seed(69)
net = nn.Sequential(Mean(), Scalars())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ls = []
for i in range(20):
    x = torch.randn(8, 3)
    l = (net(x) - 2 * x.mean(-1, keepdim=True) - 1).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1], net[1].a.item(), net[1].empty.grad)
