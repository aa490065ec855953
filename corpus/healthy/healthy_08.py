import copy
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, 96), nn.SiLU())
        self.stats = nn.Linear(96, 12)
        self.dec = nn.Sequential(nn.Linear(6, 96), nn.SiLU(), nn.Linear(96, 64))

    def elbo(self, x):
        mu, logvar = self.stats(self.enc(x)).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        rec = F.binary_cross_entropy_with_logits(self.dec(z), x, reduction="none").sum(1).mean()
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return rec, kl


x = torch.tensor(load_digits().data, dtype=torch.float32) / 16
model = VAE()
ema = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(500):
    beta = min(1.0, step / 300)
    rec, kl = model.elbo(x[torch.randint(0, 1500, (64,))])
    loss = rec + beta * kl
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.lerp_(b, 0.02)
        if step % 60 == 0 or step == 499:
            r, k = ema.elbo(x[1500:])
            print(f"step {step} beta {beta:.2f} loss {loss.item():.2f} | ema rec {r:.2f} kl {k:.2f}")
