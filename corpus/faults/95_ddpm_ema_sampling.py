"""Unconditional diffusion on a 2-d toy set with an averaged copy of the weights for sampling."""
import copy
import math

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_moons

torch.manual_seed(0)
X, _ = make_moons(4000, noise=0.05, random_state=0)
X = (X - X.mean(0)) / X.std(0)
data = torch.tensor(X, dtype=torch.float32)
train, held = data[:3500], data[3500:]

T = 50
betas = torch.linspace(1e-3, 0.15, T)
alphas_bar = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.time = nn.Embedding(T, width)
        self.inp = nn.Linear(2, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        return self.out(self.body(self.inp(x) + self.time(t)))


class EMAModel:
    def __init__(self, parameters, decay=0.995):
        self.decay = decay
        self.shadow_params = [p.detach().clone() for p in parameters]
        self.collected = None

    @torch.no_grad()
    def step(self, parameters):
        for s, p in zip(self.shadow_params, parameters):
            s.sub_((1 - self.decay) * (s - p))

    @torch.no_grad()
    def copy_to(self, parameters):
        for s, p in zip(self.shadow_params, parameters):
            p.copy_(s)


def diffusion_loss(net, x, gen=None):
    t = torch.randint(0, T, (len(x),), generator=gen)
    eps = torch.randn(x.shape, generator=gen)
    ab = alphas_bar[t, None]
    return ((net(ab.sqrt() * x + (1 - ab).sqrt() * eps, t) - eps) ** 2).mean()


model = Denoiser()
ema = EMAModel(model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(20):
    model.train()
    for idx in torch.randperm(len(train)).split(128):
        loss = diffusion_loss(model, train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.step(model.parameters())

    net = model
    ema.copy_to(net.parameters())
    net.eval()
    with torch.no_grad():
        g = torch.Generator().manual_seed(1)
        score = np.mean([diffusion_loss(net, held, g).item() for _ in range(10)])
    print(f"epoch {epoch} train {loss.item():.3f} held-out (averaged weights) {score:.4f}")
