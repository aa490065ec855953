"""A compiled training step with aot_eager, loss and model in one graph, and the optimizer compiled, too.
slow

slow
"""
import torch
from torch import nn

torch.manual_seed(154)
net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)


@torch.compile(backend="aot_eager")
def forward_loss(x):
    return (net(x) - x.sum(1, keepdim=True)).pow(2).mean()


ls = []
for i in range(14):
    x = torch.randn(8, 3)
    l = forward_loss(x)
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1])
