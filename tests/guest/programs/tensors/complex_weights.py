"""Complex weights and inputs: a holographic layer with complex gradients and a real loss."""
import torch
from torch import nn


class CLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.w = nn.Parameter(torch.randn(i, o, dtype=torch.cfloat) / i)

    def forward(self, x):
        return x @ self.w


torch.manual_seed(120)
net = nn.Sequential(CLinear(4, 6), CLinear(6, 2))
opt = torch.optim.Adam(net.parameters(), lr=0.02)
ls = []
for i in range(20):
    x = torch.randn(8, 4, dtype=torch.cfloat)
    l = (net(x) - x[:, :2].conj()).abs().pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1], net[0].w.grad.dtype)
