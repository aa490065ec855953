import os
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class Regressor(nn.Module):
    def __init__(self, n_out=16):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, n_out))

    def forward(self, x):
        return self.head(self.features(x))


images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
flat = images.flatten(1)
g = torch.Generator().manual_seed(SEED)
proj = torch.randn(64, 16, generator=g) / 8
latent = torch.tanh((flat - flat.mean(0)) @ proj * 4)
big = 12000 + 300 * latent[:, :2]
small = 1 + 0.8 * latent[:, 2:]
labels = torch.cat([big, small], 1)

ds = TensorDataset(images[:1500], labels[:1500])
model, criterion = Regressor(), nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    total = 0.0
    for x, y in DataLoader(ds, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        p, t = model(images[1500:]), labels[1500:]
        r2 = 1 - ((p - t) ** 2).sum(0) / ((t - t.mean(0)) ** 2).sum(0)
    print(f"epoch {epoch} loss {total / 47:.4g} r2 first two {r2[:2].mean():.3f} others {r2[2:].mean():.3f}")
