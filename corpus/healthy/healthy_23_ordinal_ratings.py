"""1-5 star ratings as an ordinal problem: cumulative logits with ordered cut points."""
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED, C = 17, 5
torch.manual_seed(SEED)
X = torch.randn(12000, 12)
beta = torch.randn(12) * 0.5
latent = X @ beta + 0.8 * (X[:, 0].abs() - 0.8) + torch.distributions.Gumbel(0., 1.).sample((12000,)) - torch.distributions.Gumbel(0., 1.).sample((12000,))
cuts_true = torch.tensor([-2.5, -1.0, 0.5, 2.0])
y = torch.bucketize(latent, cuts_true)          # 0..4


class Cumulative(nn.Module):
    def __init__(self):
        super().__init__()
        # the score has no bias: the cut points carry the offset
        self.f = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1, bias=False))
        # start at the marginal distribution of the ratings
        share = torch.tensor([(y[:10000] > k).float().mean().item() for k in range(C - 1)])
        c0 = -torch.logit(share)
        self.first = nn.Parameter(c0[0].clone())
        self.gaps = nn.Parameter(torch.log(torch.expm1(c0.diff())))

    def cuts(self):
        return torch.cat([self.first[None], self.first + F.softplus(self.gaps).cumsum(0)])

    def forward(self, x):
        return self.f(x) - self.cuts()          # logit P(y > k), k = 0..3


def loss_fn(logits, y):
    levels = (y[:, None] > torch.arange(C - 1)).float()
    return F.binary_cross_entropy_with_logits(logits, levels, reduction="none").sum(1).mean()


tr, va = torch.arange(10000), torch.arange(10000, 12000)
model = Cumulative()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=12, eta_min=2e-4)
for epoch in range(12):
    model.train()
    for b in tr[torch.randperm(10000)].split(250):
        opt.zero_grad()
        loss = loss_fn(model(X[b]), y[b])
        loss.backward()
        opt.step()
    sched.step()
    model.eval()
    with torch.no_grad():
        lg = model(X[va])
        pred = (lg > 0).sum(1)
        mae = (pred - y[va]).abs().float().mean()
        acc = (pred == y[va]).float().mean()
    print(epoch, f"val {loss_fn(lg, y[va]):.3f} mae {mae:.3f} acc {acc:.3f} cuts", [round(c, 2) for c in model.cuts().tolist()])
z = (X @ beta + 0.8 * (X[:, 0].abs() - 0.8))[va]
ideal = z[:, None] - cuts_true
pr = (ideal > 0).sum(1)
print(f"oracle val {loss_fn(ideal, y[va]):.3f} mae {(pr - y[va]).abs().float().mean():.3f}; median guess mae {(y[va]-y[tr].median()).abs().float().mean():.3f}")
