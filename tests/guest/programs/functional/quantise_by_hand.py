"""Quantisation aware training by hand: a straight-through estimator and fake_quantize ops."""
import torch
from torch import nn


class Ste(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x * 8) / 8

    @staticmethod
    def backward(ctx, g):
        return g


class QLinear(nn.Linear):
    def forward(self, x):
        w = torch.fake_quantize_per_tensor_affine(self.weight, 0.05, 0, -128, 127)
        return nn.functional.linear(Ste.apply(x), w, self.bias)


torch.manual_seed(29)
net = nn.Sequential(QLinear(6, 8), nn.ReLU6(), QLinear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
ls = []
for i in range(20):
    x = torch.randn(8, 6)
    l = (net(x) - x.mean(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
q = torch.quantize_per_tensor(net[0].weight.detach(), 0.05, 0, torch.qint8)
print(ls[-1], q.int_repr().sum().item())
