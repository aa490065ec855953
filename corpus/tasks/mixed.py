"""Mixed precision: a classifier under autocast with a gradient scaler, as it is written for a graphics card."""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn


class ResidualMLP(nn.Module):
    def __init__(self, width=64, classes=10):
        super().__init__()
        self.stem = nn.Linear(64, width)
        self.block1 = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.block2 = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.block1(x)
        x = x + self.block2(x)
        return self.head(x)


def main(args):
    torch.manual_seed(args.seed)
    data, target = load_digits(return_X_y=True)
    data = torch.tensor(data, dtype=torch.float32) / 16
    target = torch.tensor(target)
    model = ResidualMLP()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for it in range(args.iters):
        idx = torch.randint(0, len(data), (64,))
        x, y = data[idx], target[idx]
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if it % 50 == 0:
            print(it, loss.item())


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--iters", type=int, default=200)
    main(p.parse_args())
