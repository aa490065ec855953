"""Hooks of the program that raise in the forward, in the backward and in the step, all caught by the loop."""
import torch
from torch import nn

torch.manual_seed(66)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
tick = [0]


def every(n, what):
    def hook(*args):
        tick[0] += 1
        if tick[0] % n == 0:
            raise what(f"tick {tick[0]}")

    return hook


net[0].register_forward_hook(every(7, ValueError))
net[1].register_forward_pre_hook(every(11, KeyError))
net[2].weight.register_hook(every(5, ArithmeticError))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
opt.register_step_pre_hook(every(6, LookupError))
caught = []
for i in range(30):
    try:
        l = net(torch.randn(4, 3)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
    except Exception as e:
        caught.append(repr(e))
print(caught, l.item())
