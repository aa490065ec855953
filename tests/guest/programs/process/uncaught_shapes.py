"""The mistake that everybody makes: shapes that do not match, in the third epoch, from torch itself."""
import torch
from torch import nn

torch.manual_seed(83)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters())
for epoch in range(4):
    for i in range(5):
        x = torch.randn(4, 4 if epoch < 2 else 5)
        l = nn.functional.cross_entropy(net(x), torch.zeros(4, dtype=torch.long))
        opt.zero_grad()
        l.backward()
        opt.step()
