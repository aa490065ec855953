"""Exceptions raised in a forward, a backward, a step, a loss and a scheduler, and what their tracebacks show."""
import traceback

import torch
from torch import nn

torch.manual_seed(3)
shown = []


def attempt(what, act):
    try:
        act()
    except Exception as error:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        frames = [(frame.name, frame.filename.rsplit("/", 1)[-1]) for frame in traceback.extract_tb(error.__traceback__)]
        shown.append((what, frames, str(error)[:60]))
        print("".join(lines))


class Breaks(nn.Linear):
    broken = False

    def forward(self, x):
        if self.broken:
            raise ValueError("in forward")
        return super().forward(x)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ArithmeticError("in backward")


net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), Breaks(4, 2)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: 1.0 if n < 3 else 1 / (n - n))


def broken_closure():
    raise KeyError("in closure")


losses = []
for i in range(12):
    x = torch.randn(5, 3)
    if i in (1, 8):
        Breaks.broken = True
        attempt("forward", lambda: net(x))
        Breaks.broken = False
        attempt("shape", lambda: net(x[:, :2]))
        attempt("labels", lambda: nn.functional.cross_entropy(net(x), torch.full((5,), 7)))
        attempt("backward", lambda: Fails.apply(net(x)).sum().backward())
        attempt("no graph", lambda: torch.zeros(()).backward())
        attempt("twice", lambda: [loss.backward(), loss.backward()])
        attempt("grad", lambda: torch.autograd.grad(net(x).sum(), torch.zeros(2, requires_grad=True)))
        attempt("closure", lambda: opt.step(broken_closure))
        attempt("load", lambda: net.load_state_dict({"0.weight": torch.zeros(1)}))
        attempt("file", lambda: torch.load("/nowhere/at/all"))
        attempt("arguments", lambda: opt.zero_grad(True, 3))
        attempt("none", lambda: net.zero_grad(nothing=1))
        attempt("scheduler", lambda: [sched.step() for _ in range(5)])
        attempt("clip", lambda: nn.utils.clip_grad_value_(net.parameters()))
    loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[-1], len(shown))
