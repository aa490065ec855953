import math
import os
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
Z = 6


def real_batch(n):
    k = torch.randint(0, 4, (n,))
    a = k * math.pi / 2
    return torch.stack([a.cos(), a.sin()], 1) + 0.1 * torch.randn(n, 2)


G = nn.Sequential(nn.Linear(Z, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(spectral_norm(nn.Linear(2, 64)), nn.LeakyReLU(0.1), spectral_norm(nn.Linear(64, 64)), nn.LeakyReLU(0.1), spectral_norm(nn.Linear(64, 1)))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=3e-3, betas=(0.0, 0.9))
for it in range(400):
    for _ in range(2):
        x = real_batch(64)
        with torch.no_grad():
            fake = G(torch.randn(64, Z))
        loss_d = torch.relu(1 - D(x)).mean() + torch.relu(1 + D(fake)).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
    D.requires_grad_(False)
    loss_g = -D(G(torch.randn(64, Z))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    D.requires_grad_(True)
    if it % 50 == 0 or it == 399:
        with torch.no_grad():
            s = G(torch.randn(500, Z))
            d = torch.cdist(s, real_batch(500))
        print(f"it {it} d {loss_d.item():.3f} g {loss_g.item():.3f} fidelity {d.min(1).values.mean():.3f} coverage {d.min(0).values.mean():.3f}")
