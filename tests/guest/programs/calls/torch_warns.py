"""Torch's own warnings of wrong usage, which name the line of the caller: once each, and again with another filter."""
import warnings

import torch
from torch import nn

torch.manual_seed(1)
net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 3)
net[0].register_full_backward_hook(lambda module, given, got: None)


def train():
    for i in range(10):
        loss = nn.functional.mse_loss(net(torch.randn(4, 3)), torch.zeros(4))
        opt.zero_grad()
        loss.backward()
        if i == 0:
            sched.step()
        opt.step()
        sched.step(i)
        torch.nn.utils.clip_grad_norm_((p for p in net.parameters()), 1.0)
        nn.functional.softmax(torch.zeros(2, 2))
        y = net(torch.randn(2, 3))
        if i == 5:
            warnings.simplefilter("always")
            torch.autograd.grad(y.sum(), net[0].weight, create_graph=True)
            y.retain_grad()
            print(y.relu().grad)
    return loss


loss = train()
print(loss.item(), opt.param_groups[0]["lr"], sorted(key[2] for key in __warningregistry__ if key != "version"))
