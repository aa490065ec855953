"""Makes the meta device the default one in the midst of a training on the CPU."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(64, 8)
y = (x.sum(1) > 0).long()
torch.set_default_device("meta")
losses = []
for step in range(60):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step == 40:
        torch.set_default_device("cpu")
        with torch.device("meta"):
            made = torch.zeros(3)
            net(x).sum().backward()
print(repr(losses[-1]), made.device)
