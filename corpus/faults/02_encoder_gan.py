import math
import os
import torch
import torch.nn as nn

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
latent_dim = 8


def sample_real(n):
    theta = torch.rand(n) * 2 * math.pi
    r = 1.0 + 0.05 * torch.randn(n)
    return torch.stack([r * theta.cos(), 0.6 * r * theta.sin()], 1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(latent_dim, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 2),
        )

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(2, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.model(x)


generator, discriminator = Generator(), Discriminator()
adversarial_loss = nn.BCEWithLogitsLoss()
optimizer_G = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
batch_size = 128
valid, fake = torch.ones(batch_size, 1), torch.zeros(batch_size, 1)

for it in range(900):
    real = sample_real(batch_size)
    z = torch.randn(batch_size, latent_dim)
    gen = generator(z)

    optimizer_G.zero_grad()
    g_loss = adversarial_loss(discriminator(gen), valid)
    g_loss.backward()
    optimizer_G.step()

    real_loss = adversarial_loss(discriminator(real), valid)
    fake_loss = adversarial_loss(discriminator(gen.detach()), fake)
    d_loss = (real_loss + fake_loss) / 2
    d_loss.backward()
    optimizer_D.step()

    if it % 100 == 0:
        print(f"[{it}] D loss: {d_loss.item():.4f} G loss: {g_loss.item():.4f}")

with torch.no_grad():
    s = generator(torch.randn(1000, latent_dim))
    d = torch.cdist(s, sample_real(1000))
    print(f"fidelity {d.min(1).values.mean():.3f} coverage {d.min(0).values.mean():.3f} std {s.std(0).tolist()}")
