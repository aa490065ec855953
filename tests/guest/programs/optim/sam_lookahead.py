"""Sharpness aware minimisation: two forward and backward passes a step, weights moved there and back; Lookahead."""
import torch
from torch import nn

torch.manual_seed(55)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
base = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
slow = [p.detach().clone() for p in net.parameters()]
ls = []
for i in range(20):
    x = torch.randn(8, 4)
    f = lambda: (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    f().backward()
    with torch.no_grad():
        eps = []
        gn = torch.norm(torch.stack([p.grad.norm() for p in net.parameters()]))
        for p in net.parameters():
            e = 0.05 * p.grad / (gn + 1e-12)
            p.add_(e)
            eps.append(e)
    base.zero_grad()
    l = f()
    l.backward()
    with torch.no_grad():
        for p, e in zip(net.parameters(), eps):
            p.sub_(e)
    base.step()
    base.zero_grad()
    if i % 5 == 4:
        with torch.no_grad():
            for s, p in zip(slow, net.parameters()):
                s += 0.5 * (p - s)
                p.copy_(s)
    ls.append(l.item())
print(ls[-1])
