"""Every warning is an error, of whatever origin, for the whole program."""
import warnings

warnings.simplefilter("error")
import torch
from torch import nn

torch.manual_seed(103)
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(12):
    x = torch.randn(4, 2)
    try:
        l = nn.functional.mse_loss(net(x), torch.ones(4))
    except UserWarning as e:
        kind = type(e).__name__
        l = (net(x) - 1).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
print(kind, l.item())
