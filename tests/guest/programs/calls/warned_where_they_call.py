"""Warnings with a stacklevel, from a forward, a tensor hook, a closure, a scheduler and a backward, each of one line."""
import warnings

import torch
from torch import nn

torch.manual_seed(0)
warnings.simplefilter("default")


class Old(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        warnings.warn("forward is old", DeprecationWarning, stacklevel=1)
        warnings.warn("torch's line", DeprecationWarning, stacklevel=2)
        warnings.warn("the caller's line", DeprecationWarning, stacklevel=4)
        return self.inner(x)


class Halve(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        warnings.warn("get_lr is old", FutureWarning, stacklevel=3)
        return [group["lr"] * 0.5 for group in self.optimizer.param_groups]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        warnings.warn("cube", stacklevel=2)
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        warnings.warn("cubed", stacklevel=2)
        warnings.warn("differentiated here", stacklevel=4)
        return 3 * ctx.saved_tensors[0] ** 2 * grad


net = nn.Sequential(Old(), nn.Tanh())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = Halve(opt)


def told(grad):
    warnings.warn("a gradient", stacklevel=3)


def closure():
    opt.zero_grad()
    y = net(torch.randn(4, 3))
    y.register_hook(told)
    loss = Cube.apply(y).pow(2).mean()
    loss.backward()
    warnings.warn("a closure", stacklevel=2)
    warnings.warn("stepped here", stacklevel=4)
    return loss


losses = []
for i in range(10):
    losses.append(opt.step(closure).item())
    sched.step()
for _ in torch.utils.data.DataLoader([1, 2], batch_size=1):
    warnings.warn("a batch", stacklevel=1)
print(losses[-1], sorted(str(key[0]) for key in __warningregistry__ if key != "version"))
