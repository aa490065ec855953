# click-through model: 3% positives, probabilities must stay calibrated -> no re-weighting, no re-sampling
import math
import torch
from torch import nn
import torch.nn.functional as F

g = torch.Generator().manual_seed(11)
torch.manual_seed(11)
n = 60000
cards = [50, 20, 200]
cats = torch.stack([torch.randint(0, c, (n,), generator=g) for c in cards], 1)
num = torch.randn(n, 4, generator=g)
eff = [torch.randn(c, generator=g) * s for c, s in zip(cards, (0.8, 0.6, 0.3))]
score = sum(e[cats[:, i]] for i, e in enumerate(eff)) + 0.5 * num[:, 0] - 0.4 * num[:, 1] * num[:, 2]
p_true = torch.sigmoid(score - 4.2)
click = torch.bernoulli(p_true, generator=g)
n_tr = 50000


class CTR(nn.Module):
    def __init__(self, base_rate):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, 6) for c in cards)
        for e in self.emb:
            nn.init.normal_(e.weight, std=0.1)
        self.body = nn.Sequential(nn.Linear(6 * len(cards) + 4, 32), nn.ReLU(), nn.Linear(32, 1))
        # start at the prior
        nn.init.constant_(self.body[-1].bias, math.log(base_rate / (1 - base_rate)))

    def forward(self, c, x):
        z = torch.cat([e(c[:, i]) for i, e in enumerate(self.emb)] + [x], 1)
        return self.body(z).squeeze(1)


base = click[:n_tr].mean().item()
model = CTR(base)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
steps, bs = 0, 512
for ep in range(4):
    model.train()
    perm = torch.randperm(n_tr)
    for i in range(0, n_tr - bs + 1, bs):
        idx = perm[i:i + bs]
        loss = F.binary_cross_entropy_with_logits(model(cats[idx], num[idx]), click[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        steps += 1
    model.eval()
    with torch.no_grad():
        lo = model(cats[n_tr:], num[n_tr:])
        t = click[n_tr:]
        ll = F.binary_cross_entropy_with_logits(lo, t).item()
        ps = lo.sigmoid()
        order = lo.argsort().argsort().float() + 1
        npos = t.sum()
        auc = ((order[t == 1].sum() - npos * (npos + 1) / 2) / (npos * (len(t) - npos))).item()
    print(f"ep {ep} logloss {ll:.4f} auc {auc:.3f} predicted ctr {ps.mean():.4f} actual {t.mean():.4f}")
h = -(base * math.log(base) + (1 - base) * math.log(1 - base))
bayes = F.binary_cross_entropy(p_true[n_tr:], click[n_tr:]).item()
print(f"steps {steps} constant {h:.4f} bayes {bayes:.4f} pos rate {base:.4f}")
