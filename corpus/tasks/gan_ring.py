"""A GAN that learns to draw points of a ring: two networks, two optimizers, non-saturating loss."""

import argparse
import math

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", default=0, type=int)
opt = parser.parse_args()
torch.manual_seed(opt.seed)

nz = 8
batch_size = 64


def real_points(n):
    angle = torch.rand(n) * 2 * math.pi
    radius = 1 + 0.1 * torch.randn(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(nz, 48),
            nn.ReLU(True),
            nn.Linear(48, 48),
            nn.ReLU(True),
            nn.Linear(48, 2),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, 48),
            nn.LeakyReLU(0.2),
            nn.Linear(48, 48),
            nn.LeakyReLU(0.2),
            nn.Linear(48, 1),
        )

    def forward(self, x):
        return self.main(x).view(-1)


netG = Generator()
netD = Discriminator()
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
real_label = torch.ones(batch_size)
fake_label = torch.zeros(batch_size)

for i in range(250):
    # discriminator: log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    errD_real = criterion(netD(real_points(batch_size)), real_label)
    fake = netG(torch.randn(batch_size, nz))
    errD_fake = criterion(netD(fake.detach()), fake_label)
    errD = errD_real + errD_fake
    errD.backward()
    optimizerD.step()

    # generator: log(D(G(z)))
    netG.zero_grad()
    errG = criterion(netD(fake), real_label)
    errG.backward()
    optimizerG.step()
    if i % 50 == 0:
        print(f"[{i}] Loss_D: {errD.item():.3f} Loss_G: {errG.item():.3f}")
