import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def set_trainable(module, flag):
    for p in module.parameters():
        if p.requires_grad:
            p.requires_grad = flag


class SpectroNet(nn.Module):
    def __init__(self, n_class):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(128, n_class)

    def forward(self, x):
        return self.head(self.features(x))


def run(model, loader, opt, epochs, val, tag):
    ce = nn.CrossEntropyLoss()
    for ep in range(epochs):
        model.train()
        tot = 0.0
        for xb, yb in loader:
            opt.zero_grad()
            loss = ce(model(xb), yb)
            loss.backward()
            opt.step()
            tot += loss.item()
        model.eval()
        with torch.no_grad():
            acc = (model(val[0]).argmax(1) == val[1]).float().mean().item()
        print(f"{tag} epoch {ep} loss {tot / len(loader):.4f} val acc {acc:.4f}")


def main():
    torch.manual_seed(13)
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16 - 0.3
    y = torch.tensor(d.target)
    perm = torch.randperm(len(x))
    tr, va = perm[:1400], perm[1400:]

    # pretext: which way is the image turned
    k = torch.randint(0, 4, (1400,))
    turned = torch.stack([torch.rot90(x[i], int(r), (1, 2)) for i, r in zip(tr, k)])
    model = SpectroNet(4)
    run(model, DataLoader(TensorDataset(turned, k), 64, shuffle=True),
        torch.optim.Adam(model.parameters(), lr=1e-3), 2, (turned[:200], k[:200]), "pretext")

    model.head = nn.Linear(128, 10)
    loader = DataLoader(TensorDataset(x[tr], y[tr]), 64, shuffle=True)
    set_trainable(model.features, False)
    run(model, loader, torch.optim.Adam(model.head.parameters(), lr=2e-3), 3, (x[va], y[va]), "head")

    set_trainable(model.features, True)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    run(model, loader, opt, 12, (x[va], y[va]), "full")


if __name__ == "__main__":
    main()
