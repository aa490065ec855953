"""An embedding of many rows in double precision."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
net = nn.Sequential(nn.Embedding(20000, 8), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
ids = torch.randint(20000, (64,))
for _ in range(40):
    opt.zero_grad()
    loss = F.cross_entropy(net(ids), ids % 2)
    loss.backward()
    opt.step()
print(repr(loss.item()))
