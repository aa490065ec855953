import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten())
        self.head_source = nn.Linear(512, 10)
        self.head_target = nn.Linear(512, 10)


def accuracy(head, x, y):
    net.eval()
    with torch.no_grad():
        return (head(net.backbone(x)).argmax(1) == y).float().mean().item()


d = load_digits()
X, Y = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target)
inverted = 2.0 - 1.5 * X
source_loader = DataLoader(TensorDataset(X[:1200], Y[:1200]), batch_size=32, shuffle=True)
target_loader = DataLoader(TensorDataset(inverted[:1200], Y[:1200]), batch_size=32, shuffle=True)
net = MultiHead()

opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    net.train()
    for x, y in source_loader:
        opt.zero_grad()
        loss = F.cross_entropy(net.head_source(net.backbone(x)), y)
        loss.backward()
        opt.step()
    print(f"source epoch {epoch} loss {loss.item():.3f} acc {accuracy(net.head_source, X[1200:], Y[1200:]):.3f}")

for param in net.backbone.parameters():
    param.requires_grad = False
for param in net.head_source.parameters():
    param.requires_grad = False
opt = torch.optim.Adam(net.head_target.parameters(), lr=3e-3)
for epoch in range(6):
        net.train()
        for x, y in target_loader:
            opt.zero_grad()
            loss = F.cross_entropy(net.head_target(net.backbone(x)), y)
            loss.backward()
            opt.step()
        print(f"target epoch {epoch} loss {loss.item():.3f} target acc {accuracy(net.head_target, inverted[1200:], Y[1200:]):.3f} "
              f"source acc {accuracy(net.head_source, X[1200:], Y[1200:]):.3f}")
