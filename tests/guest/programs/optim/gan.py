"""A GAN with two optimizers, detach, and requires_grad switched off and on for the discriminator."""
import torch
from torch import nn

torch.manual_seed(42)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
og = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
od = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))
bce = nn.BCEWithLogitsLoss()
hist = []
for i in range(25):
    real = torch.randn(12, 2) * 0.3 + 1
    for p in D.parameters():
        p.requires_grad_(True)
    fake = G(torch.randn(12, 4)).detach()
    ld = bce(D(real), torch.ones(12, 1)) + bce(D(fake), torch.zeros(12, 1))
    od.zero_grad()
    ld.backward()
    od.step()
    for p in D.parameters():
        p.requires_grad_(False)
    if i % 2 == 0:
        lg = bce(D(G(torch.randn(12, 4))), torch.ones(12, 1))
        og.zero_grad()
        lg.backward()
        og.step()
    hist.append((ld.item(), lg.item()))
print(hist[-1])
