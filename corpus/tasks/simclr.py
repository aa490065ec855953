"""Contrastive learning of digit images: two noisy views of each image, cosine similarity, a temperature."""

import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn


class Encoder(nn.Module):
    def __init__(self, dim=64, out=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(64, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.projector = nn.Linear(dim, out)

    def forward(self, x):
        return self.projector(self.backbone(x))


def augment(x):
    noise = 0.15 * torch.randn_like(x)
    keep = (torch.rand_like(x) > 0.1).float()
    return (x + noise) * keep


def nt_xent(z1, z2, temperature=0.2):
    z1 = F.normalize(z1, dim=1)
    z2 = F.normalize(z2, dim=1)
    logits = z1 @ z2.t() / temperature
    labels = torch.arange(z1.size(0))
    return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels))


def main(seed):
    torch.manual_seed(seed)
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    encoder = Encoder()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)
    for step in range(200):
        x = images[torch.randperm(len(images))[:64]]
        z1, z2 = encoder(augment(x)), encoder(augment(x))
        loss = nt_xent(z1, z2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step:4d} {loss.item():.4f}")


main(int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0)
