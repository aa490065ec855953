"""Two-task geometry network under autocast: point depth per patch and a unit ray per patch."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class RigNet(nn.Module):
    def __init__(self, feat, dim=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(feat, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU())
        self.depth_head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 1))
        self.ray_head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 3))

    def forward(self, patches):
        h = self.trunk(patches)
        return self.depth_head(h).squeeze(-1), self.ray_head(h)


class MultiTaskLoss(nn.Module):
    def __init__(self, ray_weight=1e-6):
        super().__init__()
        self.ray_weight = ray_weight

    def forward(self, out, depth, rays):
        pred_depth, pred_rays = out[0].float(), out[1].float()
        l_depth = F.mse_loss(pred_depth, depth)
        l_ray = (1 - F.cosine_similarity(pred_rays, rays, dim=-1, eps=1e-4)).mean()
        return l_depth + self.ray_weight * l_ray, l_depth.detach(), l_ray.detach()


def scenes(n, patches, feat, gen):
    x = torch.randn(n, patches, feat, generator=gen)
    g = torch.Generator().manual_seed(99)
    wd, wr = torch.randn(feat, generator=g) / feat ** 0.5, torch.randn(feat, 3, generator=g)
    depth = torch.tanh(x @ wd) + 0.3 * x[..., 0]
    return x, depth, F.normalize(x @ wr, dim=-1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--lr", type=float, default=2e-3)
    args = p.parse_args()
    torch.manual_seed(40)
    gen = torch.Generator().manual_seed(40)
    model, criterion = RigNet(12), MultiTaskLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, eps=1e-10)
    val = scenes(8, 128, 12, gen)
    for step in range(args.steps):
        x, depth, rays = scenes(16, 128, 12, gen)
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        loss, l_depth, l_ray = criterion(out, depth, rays)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            with torch.no_grad():
                _, vd, vr = criterion(model(val[0]), *val[1:])
            print(f"step {step} loss {loss.item():.5f} depth {vd.item():.5f} ray {vr.item():.5f}")


if __name__ == "__main__":
    main()
