"""Linear evaluation of a pretrained backbone on a second data set, first task kept."""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits


def deactivate_requires_grad(model):
    for p in model.parameters():
        p.requires_grad = False


def make_backbone():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


class Classifier(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(96, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def run(model, params, x, y, steps, lr, log):
    opt = torch.optim.Adam(params, lr=lr)
    for step in range(steps):
        idx = torch.randint(len(x), (64,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 29:
            print(f"{log} step {step + 1} loss {loss.item():.3f}")


torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
y = torch.tensor(digits.target)
perm = torch.randperm(len(x))
xtr, ytr, xte, yte = x[perm[:1300]], y[perm[:1300]], x[perm[1300:]], y[perm[1300:]]

# 1. pretraining on the clean scans
backbone = make_backbone()
first = Classifier(backbone, 10)
first.train()
run(first, first.parameters(), xtr, ytr, 180, 3e-3, "pretrain")
acc_first = accuracy(first, xte, yte)

# 2. linear probe: odd / even on pale photographs of the same digits
xtr2, xte2 = 0.6 * xtr + 0.3, 0.6 * xte + 0.3
deactivate_requires_grad(backbone)
probe = Classifier(backbone, 2)
probe.train()
run(probe, probe.head.parameters(), xtr2, ytr % 2, 180, 1e-2, "probe")

print(f"probe accuracy {accuracy(probe, xte2, yte % 2):.3f}")
print(f"first task accuracy before {acc_first:.3f} and after {accuracy(first, xte, yte):.3f}")
