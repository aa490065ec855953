"""Anomaly mode around a backward that makes NaN, caught and reported by the script."""
import torch
from torch import nn

torch.manual_seed(6)
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
caught = []
for i in range(10):
    x = torch.randn(3, 4)
    opt.zero_grad()
    try:
        with torch.autograd.detect_anomaly(check_nan=True):
            z = net(x)
            if i == 5:
                z = torch.sqrt(z * 0 - 1e-30 * (z > -1e9)) * z
            z.pow(2).sum().backward()
    except RuntimeError as e:
        caught.append((i, str(e)[:40]))
        continue
    opt.step()
print(caught)
