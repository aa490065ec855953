"""Small vocoder with an adversarial part, mixed precision (half on the CPU) and gradient scaling."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import GradScaler, autocast

SEG, MEL = 64, 8


class Vocoder(nn.Module):
    """one frame of features (+ noise) -> a segment of samples"""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(MEL + 4, 96), nn.LeakyReLU(0.1), nn.Linear(96, 96), nn.LeakyReLU(0.1), nn.Linear(96, SEG), nn.Tanh())

    def forward(self, mel):
        return self.net(torch.cat([mel, torch.randn(len(mel), 4)], 1))


class SegmentDiscriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SEG + MEL, 64), nn.LeakyReLU(0.1), nn.Linear(64, 64), nn.LeakyReLU(0.1))
        self.post = nn.Linear(64, 1)

    def forward(self, wav, mel):
        return self.post(self.body(torch.cat([wav, mel], 1)))


def get_batch(n, gen=None):
    f = torch.rand(n, 1, generator=gen) * 4 + 1
    amp = torch.rand(n, 1, generator=gen) * 0.6 + 0.2
    t = torch.linspace(0, 1, SEG)[None]
    wav = amp * torch.sin(2 * math.pi * f * t)
    mel = torch.cat([amp, f / 5 - 0.6] + [torch.sin(k * f) for k in range(1, MEL - 1)], 1)
    return wav, mel


def train():
    torch.manual_seed(1234)
    net_g, net_d = Vocoder(), SegmentDiscriminator()
    optim_g = torch.optim.SGD(net_g.parameters(), lr=0.02, momentum=0.9)
    optim_d = torch.optim.SGD(net_d.parameters(), lr=0.01, momentum=0.9)
    scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    for step in range(400):
        wav, mel = get_batch(64)

        with autocast("cpu", dtype=torch.float16):
            y_hat = net_g(mel)
            d_real, d_fake = net_d(wav, mel), net_d(y_hat.detach(), mel)
        loss_disc = ((1 - d_real.float()) ** 2).mean() + (d_fake.float() ** 2).mean()
        optim_d.zero_grad()
        scaler.scale(loss_disc).backward()
        scaler.unscale_(optim_d)
        nn.utils.clip_grad_norm_(net_d.parameters(), 10.0)
        scaler.step(optim_d)

        with autocast("cpu", dtype=torch.float16):
            d_fake = net_d(y_hat, mel)
        loss_rec = F.l1_loss(y_hat.float(), wav) * 45
        loss_gen = ((1 - d_fake.float()) ** 2).mean()
        loss_gen_all = loss_gen + loss_rec
        optim_g.zero_grad()
        scaler.scale(loss_gen_all).backward()
        scaler.unscale_(optim_g)
        nn.utils.clip_grad_norm_(net_g.parameters(), 1.0)
        scaler.step(optim_g)

        optim_g.step()
        optim_d.step()
        scaler.update()
        if step % 40 == 39:
            print(f"step {step + 1} disc {loss_disc.item():.4f} gen {loss_gen.item():.4f} rec {loss_rec.item():.4f} scale {scaler.get_scale()}")


train()
