"""A gradient penalty by double backward, WGAN-GP fashion, through create_graph."""
import torch
from torch import autograd, nn

torch.manual_seed(2)
D = nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt = torch.optim.RMSprop(D.parameters(), lr=1e-3)
penalties = []
for it in range(20):
    real, fake = torch.randn(8, 3), torch.rand(8, 3)
    eps = torch.rand(8, 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    (g,) = autograd.grad(D(mix).sum(), mix, create_graph=True)
    gp = ((g.norm(2, dim=1) - 1) ** 2).mean()
    loss = D(fake).mean() - D(real).mean() + 10 * gp
    opt.zero_grad()
    loss.backward()
    opt.step()
    penalties.append(float(gp))
print(penalties[0], penalties[-1])
