"""Modules with __eq__, __hash__, __bool__, __len__ and __contains__ that lie, raise and count."""
import torch
from torch import nn


class Liar(nn.Linear):
    calls = 0

    def __eq__(self, other):
        Liar.calls += 1
        return True

    def __hash__(self):
        return 42

    def __bool__(self):
        raise TypeError("a layer has no truth")

    def __len__(self):
        Liar.calls += 1
        return 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = Liar(3, 5), Liar(5, 5), Liar(5, 1)

    def forward(self, x):
        return self.three(self.two(self.one(x).relu()).relu())


torch.manual_seed(62)
net = Net()
opt = torch.optim.SGD([net.one.weight, net.two.weight, net.three.weight, net.three.bias], lr=0.1)
for _ in range(15):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
before = Liar.calls
print(l.item())
