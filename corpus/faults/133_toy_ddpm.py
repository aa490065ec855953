"""Denoising diffusion on two moons. Samples are drawn with the averaged weights."""
import copy
import math

import torch
import torch.nn as nn
from sklearn.datasets import make_moons

T = 50
betas = torch.linspace(1e-3, 0.2, T)
alphas_bar = torch.cumprod(1 - betas, 0)


class EMA:
    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
        self.backup = {}

    @torch.no_grad()
    def update(self, model):
        for name, param in model.named_parameters():
            if name in self.shadow:
                self.shadow[name].mul_(self.decay).add_(param, alpha=1 - self.decay)

    @torch.no_grad()
    def copy_to(self, model):
        for name, param in model.named_parameters():
            param.copy_(self.shadow[name])


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.linspace(0, math.log(200.0), 16)))
        self.inp = nn.Linear(2 + 32, width)
        self.mid = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        a = (t.float() / T)[:, None] * self.freqs
        return self.out(self.mid(self.inp(torch.cat([x, a.sin(), a.cos()], 1))))


def q_sample(x0, t, eps):
    ab = alphas_bar[t][:, None]
    return ab.sqrt() * x0 + (1 - ab).sqrt() * eps


@torch.no_grad()
def evaluate(net, data, seed=5):
    g = torch.Generator().manual_seed(seed)
    x0 = data[torch.randint(len(data), (512,), generator=g)]
    t = torch.randint(0, T, (512,), generator=g)
    eps = torch.randn(512, 2, generator=g)
    return ((net(q_sample(x0, t, eps), t) - eps) ** 2).mean().item()


@torch.no_grad()
def sample(net, n, seed=9):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=g)
    for t in reversed(range(T)):
        eps = net(x, torch.full((n,), t))
        x = (x - betas[t] / (1 - alphas_bar[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
        if t:
            x = x + betas[t].sqrt() * torch.randn(n, 2, generator=g)
    return x


def train():
    torch.manual_seed(0)
    data = torch.tensor(make_moons(4000, noise=0.05, random_state=0)[0], dtype=torch.float32)
    data = (data - data.mean(0)) / data.std(0)
    net = Denoiser()
    ema = EMA(net)
    eval_net = copy.deepcopy(net)
    model = torch.compile(net, backend="eager")
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    model.train()
    for step in range(500):
        x0 = data[torch.randint(len(data), (256,))]
        t = torch.randint(0, T, (256,))
        eps = torch.randn_like(x0)
        loss = ((model(q_sample(x0, t, eps), t) - eps) ** 2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        ema.update(model)
        if (step + 1) % 50 == 0:
            ema.copy_to(eval_net)
            eval_net.eval()
            print(f"step {step + 1}: loss {loss.item():.4f}  averaged model {evaluate(eval_net, data):.4f}")
    pts = sample(eval_net, 500)
    near = torch.cdist(pts, data).min(1).values.mean().item()
    print(f"mean distance of samples to the data {near:.3f}")


if __name__ == "__main__":
    train()
