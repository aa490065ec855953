"""Losses and gradients at the edges of float32 and of float16: denormals, 1e38, -0.0."""
import torch
from torch import nn

torch.manual_seed(136)
net = nn.Linear(4, 1)
h = nn.Linear(4, 1).half()
opt = torch.optim.SGD([*net.parameters(), *h.parameters()], lr=1e-3)
ls = []
for i in range(16):
    s = [1e-42, 1e38, -0.0, 6e4][i % 4]
    x = torch.randn(3, 4) * s
    l = net(x).abs().mean() + h(x.clamp(-1e4, 1e4).half()).float().abs().mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls)
