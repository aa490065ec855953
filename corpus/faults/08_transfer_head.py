import os
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))


class SmallNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )
        self.fc = nn.Linear(128, num_classes)

    def forward(self, x):
        return self.fc(self.features(x))


def make_loader(images, labels, classes, batch_size=32):
    keep = torch.isin(labels, torch.tensor(classes))
    return DataLoader(TensorDataset(images[keep], labels[keep] - min(classes)), batch_size=batch_size, shuffle=True)


def fit(model, optimizer, loader, epochs, tag):
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        total, hits, n = 0.0, 0, 0
        for x, y in loader:
            optimizer.zero_grad()
            out = model(x)
            loss = criterion(out, y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
            hits += (out.argmax(1) == y).sum().item()
            n += len(y)
        print(f"{tag} epoch {epoch}: loss {total / n:.4f} acc {hits / n:.3f}")


def finetune(model, loader, num_classes):
    for p in model.parameters():
        p.requires_grad = False
    for p in model.fc.parameters():
        p.requires_grad = True
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1, momentum=0.9)
    model.fc = nn.Linear(model.fc.in_features, num_classes)
    fit(model, optimizer, loader, 8, "finetune")


torch.manual_seed(SEED)
d = load_digits()
images = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(d.target)
model = SmallNet(5)
fit(model, torch.optim.Adam(model.parameters(), lr=2e-3), make_loader(images, labels, [0, 1, 2, 3, 4]), 6, "pretrain")
finetune(model, make_loader(images, labels, [5, 6, 7, 8, 9]), 5)
