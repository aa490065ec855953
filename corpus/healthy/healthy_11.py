"""Fit a damped oscillator ODE with a physics-informed tanh network and L-BFGS."""
import math
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)


class Field(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                 nn.Linear(width, 1))

    def forward(self, t):
        return self.net(t / 2.0 - 1.0)


def exact(t, d=0.3, w=2.0):
    wd = math.sqrt(w * w - d * d)
    return torch.exp(-d * t) * (torch.cos(wd * t) + d / wd * torch.sin(wd * t))


def residual(model, t, d=0.3, w=2.0):
    t = t.requires_grad_(True)
    u = model(t)
    du = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
    ddu = torch.autograd.grad(du.sum(), t, create_graph=True)[0]
    return ddu + 2 * d * du + w * w * u


model = Field()
grid = torch.linspace(0, 4, 60).unsqueeze(1)
t0 = torch.zeros(1, 1)
solver = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=10, history_size=30,
                           line_search_fn="strong_wolfe")


def closure():
    solver.zero_grad()
    start = t0.clone().requires_grad_(True)
    u0 = model(start)
    v0 = torch.autograd.grad(u0.sum(), start, create_graph=True)[0]
    loss = residual(model, grid.clone()).pow(2).mean() + 10 * (u0 - 1).pow(2).mean() + 10 * v0.pow(2).mean()
    loss.backward()
    return loss


for outer in range(60):
    loss = solver.step(closure)
    if outer % 10 == 0:
        print(f"outer {outer} objective {loss.item():.3e}")

with torch.no_grad():
    t = torch.linspace(0, 4, 101).unsqueeze(1)
    print(f"max error against the closed form {(model(t) - exact(t)).abs().max().item():.2e}")
