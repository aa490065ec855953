"""Three tasks on one trunk, weighted by learned homoscedastic uncertainty (Kendall & Gal). Total can go below zero."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(41)
N = 6000
x = torch.randn(N, 10)
z = torch.tanh(x @ torch.randn(10, 4) / 10 ** 0.5)
clean = (z @ torch.tensor([1.0, -1.0, 0.5, 0.0]))
noisy = (z @ torch.tensor([0.0, 0.5, 1.0, 1.0]))
y1 = (clean / clean.std()) + 0.1 * torch.randn(N)
y2 = (noisy / noisy.std()) + 1.0 * torch.randn(N)
logits_true = 3 * z[:, :3]
y3 = torch.distributions.Categorical(logits=logits_true).sample()


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.r1, self.r2, self.c = nn.Linear(64, 1), nn.Linear(64, 1), nn.Linear(64, 3)
        self.log_var = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        h = self.trunk(x)
        return self.r1(h)[:, 0], self.r2(h)[:, 0], self.c(h)

    def losses(self, x, a, b, c):
        p, q, l = self(x)
        return torch.stack([F.mse_loss(p, a), F.mse_loss(q, b), F.cross_entropy(l, c)])

    def combine(self, L):
        coef = torch.tensor([0.5, 0.5, 1.0])
        return (coef * torch.exp(-self.log_var) * L + 0.5 * self.log_var).sum()


m = MultiTask()
opt = torch.optim.Adam([
    {"params": [p for n, p in m.named_parameters() if n != "log_var"], "lr": 2e-3},
    {"params": [m.log_var], "lr": 1e-2},
])
ntr = 5000
for epoch in range(12):
    m.train()
    for i in torch.randperm(ntr).split(125):
        total = m.combine(m.losses(x[i], y1[i], y2[i], y3[i]))
        opt.zero_grad()
        total.backward()
        opt.step()
    m.eval()
    with torch.no_grad():
        v = m.losses(x[ntr:], y1[ntr:], y2[ntr:], y3[ntr:])
    if epoch % 3 == 2:
        print(epoch, f"total {total.item():.3f} val", [round(t, 3) for t in v.tolist()], "sigma^2", [round(t, 3) for t in m.log_var.exp().tolist()])
print("floors", 0.01, 1.0, round(F.cross_entropy(logits_true[ntr:], y3[ntr:]).item(), 3))
