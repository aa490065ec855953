"""An optimizer written from scratch that is not a torch.optim.Optimizer, and one that is, with step(closure=None)."""
import torch
from torch import nn


class Lion:
    def __init__(self, params, lr):
        self.params, self.lr, self.m = list(params), lr, {}

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p in self.params:
            m = self.m.setdefault(p, torch.zeros_like(p))
            p.sub_(self.lr * (0.9 * m + 0.1 * p.grad).sign())
            m.mul_(0.99).add_(p.grad, alpha=0.01)


class SignSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    p -= g["lr"] * p.grad.sign()
                    self.state[p]["n"] = self.state[p].get("n", 0) + 1


torch.manual_seed(49)
a, b = nn.Linear(4, 8), nn.Linear(8, 1)
o1, o2 = Lion(a.parameters(), 1e-2), SignSGD(b.parameters())
ls = []
for _ in range(20):
    x = torch.randn(8, 4)
    l = (b(a(x).relu()) - x.sum(1, keepdim=True)).pow(2).mean()
    o1.zero_grad(), o2.zero_grad()
    l.backward()
    o1.step(), o2.step()
    ls.append(l.item())
print(ls[-1])
