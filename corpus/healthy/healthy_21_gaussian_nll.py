"""Heteroscedastic regression of a calibrated sensor; the likelihood is a density, so the loss goes below zero."""
import torch
from torch import nn

torch.manual_seed(21)


def make(n):
    x = torch.rand(n, 2) * 2 - 1
    sd = 0.02 + 0.1 * torch.sigmoid(4 * x[:, 1])
    f = torch.sin(2.5 * x[:, 0]) * 0.9 + 0.3 * x[:, 1]
    return x, f + sd * torch.randn(n), f, sd


class MeanVar(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mu = nn.Linear(hidden, 1)
        self.rho = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.body(x)
        return self.mu(h).squeeze(-1), nn.functional.softplus(self.rho(h)).squeeze(-1) ** 2 + 1e-4


xt, yt, _, _ = make(6000)
xv, yv, fv, sv = make(2000)
model = MeanVar()
crit = nn.GaussianNLLLoss(eps=1e-6)
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
sch = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=600)
step = 0
while step < 600:
    for idx in torch.randperm(len(xt)).split(200):
        model.train()
        mu, var = model(xt[idx])
        loss = crit(mu, yt[idx], var)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100.0)   # only against accidents
        opt.step()
        sch.step()
        step += 1
        if step % 100 == 0:
            model.eval()
            with torch.no_grad():
                m, v = model(xv)
                val = crit(m, yv, v)
                z2 = ((yv - m) ** 2 / v).mean()
            print(f"{step} train {loss.item():.3f} val {val:.3f} mean z^2 {z2:.2f}")
print(f"true density {crit(fv, yv, sv**2):.3f}")
