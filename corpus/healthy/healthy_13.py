"""Denoising diffusion on the two-moons plane; sampling is done with an EMA copy of the network."""
import copy
import math
import torch
from torch import nn
from sklearn.datasets import make_moons

T = 50


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.linspace(0, math.log(30.0), 8)))
        self.inp = nn.Linear(2 + 16, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.out = nn.Linear(width, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t):
        ang = (t.float() / T)[:, None] * self.freqs
        h = nn.functional.silu(self.inp(torch.cat([x, ang.sin(), ang.cos()], 1)))
        for layer in self.mid:
            h = h + nn.functional.silu(layer(h))
        return self.out(h)


def main():
    torch.manual_seed(0)
    data, _ = make_moons(4000, noise=0.05, random_state=0)
    data = torch.tensor((data - data.mean(0)) / data.std(0), dtype=torch.float32)
    betas = torch.linspace(1e-3, 0.15, T)
    alphas = 1 - betas
    abar = torch.cumprod(alphas, 0)

    net = Denoiser()
    ema = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=0.0)
    steps = 600
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps, eta_min=1e-4)
    for step in range(steps):
        x0 = data[torch.randint(0, len(data), (256,))]
        t = torch.randint(0, T, (256,))
        noise = torch.randn_like(x0)
        a = abar[t][:, None]
        loss = (net(a.sqrt() * x0 + (1 - a).sqrt() * noise, t) - noise).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        with torch.no_grad():
            decay = min(0.99, (1 + step) / (10 + step))
            for p, q in zip(ema.parameters(), net.parameters()):
                p.lerp_(q, 1 - decay)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")

    with torch.no_grad():
        x = torch.randn(1000, 2)
        for k in reversed(range(T)):
            t = torch.full((1000,), k)
            eps = ema(x, t)
            x = (x - betas[k] / (1 - abar[k]).sqrt() * eps) / alphas[k].sqrt()
            if k:
                x = x + betas[k].sqrt() * torch.randn_like(x)
        near = torch.cdist(x, data).min(1).values
    print(f"mean distance of samples to the data {near.mean().item():.3f}, std {x.std(0).tolist()}")


if __name__ == "__main__":
    main()
