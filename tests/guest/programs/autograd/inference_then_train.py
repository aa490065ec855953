"""Inference mode, no_grad and set_grad_enabled as decorators, context managers and switches left on."""
import torch
from torch import nn

torch.manual_seed(12)
net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)


@torch.inference_mode()
def evaluate(n):
    net.eval()
    r = net(torch.randn(n, 3)).mean()
    net.train()
    return r


@torch.no_grad()
def ema(dst, src):
    for a, b in zip(dst.parameters(), src.parameters()):
        a.lerp_(b, 0.1)


shadow = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
scores = []
for i in range(12):
    loss = net(torch.randn(6, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema(shadow, net)
    scores.append(evaluate(5))
torch.set_grad_enabled(False)
final = net(torch.ones(2, 3))
print([s.item() for s in scores], final.requires_grad)
