"""A shape dry run under FakeTensorMode before the real training, and one on the meta device."""
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

torch.manual_seed(34)
with FakeTensorMode():
    ghost = nn.Sequential(nn.Linear(1000, 4000), nn.ReLU(), nn.Linear(4000, 10))
    gopt = torch.optim.SGD(ghost.parameters(), lr=0.1)
    for _ in range(3):
        y = ghost(torch.randn(64, 1000))
        y.sum().backward()
        gopt.step()
        gopt.zero_grad()
    shapes = [tuple(p.shape) for p in ghost.parameters()]
meta = nn.Linear(5, 5, device="meta")
shapes.append(tuple(meta(torch.empty(3, 5, device="meta")).shape))
net = meta.to_empty(device="cpu")
nn.init.eye_(net.weight), nn.init.zeros_(net.bias)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(8):
    l = net(torch.randn(3, 5)).pow(2).sum()
    opt.zero_grad()
    l.backward()
    opt.step()
print(shapes, l.item())
del ghost, gopt, y
