import math, torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
QS = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])


class QuantileNet(nn.Module):
    """predicts the lowest quantile and positive increments, so quantiles never cross"""
    def __init__(self, d, q):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.low = nn.Linear(64, 1)
        self.inc = nn.Linear(64, q - 1)

    def forward(self, x):
        h = self.trunk(x)
        return torch.cat([self.low(h), F.softplus(self.inc(h))], -1).cumsum(-1)


def pinball(pred, y):
    e = y.unsqueeze(-1) - pred
    return torch.maximum(QS * e, (QS - 1) * e).mean()


def sample(n):
    x = torch.rand(n, 3) * 2 - 1
    scale = 0.2 + 0.6 * (x[:, 1] + 1) / 2
    y = torch.sin(3 * x[:, 0]) + scale * torch.randn(n)
    return x * math.sqrt(3.0), y, scale, torch.sin(3 * x[:, 0])


xtr, ytr, _, _ = sample(8000)
xte, yte, sc, mu = sample(4000)
mean, std = ytr.mean(), ytr.std()
net = QuantileNet(3, len(QS))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=500, eta_min=1e-4)
for step in range(500):
    i = torch.randint(0, len(xtr), (256,))
    loss = pinball(net(xtr[i]), (ytr[i] - mean) / std)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if (step + 1) % 100 == 0:
        with torch.no_grad():
            q = net(xte) * std + mean
            cover = (yte[:, None] <= q).float().mean(0)
        print(step + 1, f"train {loss.item():.4f} test {pinball((q-mean)/std, (yte-mean)/std):.4f} coverage", [round(c, 3) for c in cover.tolist()])
z = torch.distributions.Normal(0., 1.).icdf(QS)
best = pinball((mu[:, None] + sc[:, None] * z - mean) / std, (yte - mean) / std)
print(f"true quantiles' loss {best:.4f}")
