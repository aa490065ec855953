import os
from dataclasses import dataclass
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))


@dataclass
class Config:
    micro_batch: int = 8
    grad_accum: int = 8
    steps: int = 220
    lr: float = 2e-3
    noise: float = 0.3


class AE(nn.Module):
    def __init__(self, latent=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU(),
                                     nn.Flatten(), nn.Linear(128, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 128), nn.GELU(), nn.Unflatten(1, (32, 2, 2)),
                                     nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def infinite(x, bs, gen):
    while True:
        order = torch.randperm(len(x), generator=gen)
        for i in range(0, len(x) - bs + 1, bs):
            yield x[order[i:i + bs]]


def main():
    cfg = Config()
    torch.manual_seed(SEED)
    gen = torch.Generator().manual_seed(SEED)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    train, val = images[:1500], images[1500:]
    loader = infinite(train, cfg.micro_batch, gen)
    model = AE()
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95))
    for step in range(cfg.steps):
        log = 0.0
        for micro in range(cfg.grad_accum):
            optimizer.zero_grad(set_to_none=True)
            x = next(loader)
            rec = model(x + cfg.noise * torch.randn_like(x))
            loss = nn.functional.mse_loss(rec, x) / cfg.grad_accum
            loss.backward()
            log += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {log:.4f}")
    with torch.no_grad():
        print("val mse", nn.functional.mse_loss(model(val), val).item())


main()
