"""WGAN with gradient penalty on a bent, two-dimensional density, 4 critic updates a generator update, critic at twice the learning rate."""
import torch, torch.nn as nn
torch.manual_seed(13)

def real(n):
    a = torch.randn(n)
    return torch.stack([a, 0.6 * (a ** 2 - 1) + 0.35 * torch.randn(n)], 1)

def mlp(i, o, h=96):
    return nn.Sequential(nn.Linear(i, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, o))

G, C = mlp(8, 2), mlp(2, 1)
g_opt = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
c_opt = torch.optim.Adam(C.parameters(), lr=2e-3, betas=(0.0, 0.9))

def energy_distance(a, b):
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()

def penalty(x, f):
    eps = torch.rand(len(x), 1)
    z = (eps * x + (1 - eps) * f).requires_grad_(True)
    grad, = torch.autograd.grad(C(z).sum(), z, create_graph=True)
    return ((torch.linalg.vector_norm(grad, dim=1) - 1) ** 2).mean()

with torch.no_grad():
    print("start", round(energy_distance(real(1000), G(torch.randn(1000, 8))), 4))
g_sched = torch.optim.lr_scheduler.CosineAnnealingLR(g_opt, 300, eta_min=5e-5)
c_sched = torch.optim.lr_scheduler.CosineAnnealingLR(c_opt, 300, eta_min=2e-4)
for it in range(1, 301):
    for _ in range(4):
        x = real(128)
        with torch.no_grad():
            f = G(torch.randn(128, 8))
        w = C(x).mean() - C(f).mean()
        loss_c = -w + 2.0 * penalty(x, f)
        c_opt.zero_grad(); loss_c.backward(); c_opt.step()
    C.requires_grad_(False)
    loss_g = -C(G(torch.randn(128, 8))).mean()
    g_opt.zero_grad(); loss_g.backward(); g_opt.step()
    C.requires_grad_(True)
    g_sched.step(); c_sched.step()
    if it % 75 == 0:
        with torch.no_grad():
            s = G(torch.randn(1000, 8))
        print(it, f"W {w.item():.3f} energy distance {energy_distance(real(1000), s):.4f} std", [round(v, 2) for v in s.std(0).tolist()])
print("real against real", round(energy_distance(real(1000), real(1000)), 4))
