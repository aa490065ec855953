import argparse
import os
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))


class Denoiser(nn.Module):
    def __init__(self, dim=64, hidden=192, num_classes=10):
        super().__init__()
        self.label_emb = nn.Embedding(num_classes, hidden)
        self.time_emb = nn.Sequential(nn.Linear(1, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.inp = nn.Linear(dim, hidden)
        self.mid = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.out = nn.Linear(hidden, dim)

    def forward(self, x, t, y):
        h = self.inp(x) + self.time_emb(t[:, None]) + self.label_emb(y)
        h = h + self.mid(h)
        return self.out(nn.functional.silu(h))


def diffusion_loss(model, x, y):
    t = torch.rand(x.size(0))
    noise = torch.randn_like(x)
    a = torch.cos(t * 1.5)[:, None]
    s = torch.sin(t * 1.5)[:, None]
    pred = model(a * x + s * noise, t, y)
    return nn.functional.mse_loss(pred.float(), noise)


def main(args):
    torch.manual_seed(SEED)
    data = load_digits()
    X = torch.tensor(data.data, dtype=torch.float32) / 8 - 1
    Y = torch.tensor(data.target)
    model = Denoiser()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    running = []
    for step in range(args.steps):
        idx = torch.randint(0, len(X), (args.batch_size,))
        x, cond = X[idx], Y[idx]
        if args.bfloat16:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = diffusion_loss(model, x, cond)
            loss.backward()
            if args.grad_clip > 0:
                nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
            opt.step()
        else:
            loss = diffusion_loss(model, x, cond)
            opt.zero_grad()
            loss.backward()
            if args.grad_clip > 0:
                nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
            opt.step()
        running.append(loss.item())
        if step % 50 == 49:
            print(f"(step={step + 1:05d}) Train Loss: {sum(running[-50:]) / 50:.4f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--grad-clip", type=float, default=10.0)
    p.add_argument("--bfloat16", type=int, default=1)
    main(p.parse_args())
