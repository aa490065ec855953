import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
MEAN, STD = 0.28, 0.12


class CrowdDataset(Dataset):
    def __init__(self, n, seed, train):
        g = torch.Generator().manual_seed(seed)
        self.train = train
        self.img = 60 + 12 * torch.randn(n, 1, 20, 20, generator=g)
        self.density = torch.zeros(n, 1, 10, 10)
        for i in range(n):
            for _ in range(int(torch.randint(1, 10, (1,), generator=g))):
                y, x = torch.randint(0, 9, (2,), generator=g).tolist()
                self.img[i, 0, 2 * y:2 * y + 3, 2 * x:2 * x + 3] += 70
                self.density[i, 0, y, x] += 1
        self.img.clamp_(0, 255)

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        if self.train:
            x = (self.img[i] / 255.0 - MEAN) / STD
        else:
            x = self.img[i] - torch.tensor(92.8207)
        return x, self.density[i]


class CSRNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.frontend = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.backend = nn.Sequential(nn.Conv2d(16, 24, 3, padding=2, dilation=2), nn.ReLU(), nn.Conv2d(24, 16, 3, padding=1), nn.ReLU())
        self.output_layer = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        return self.output_layer(self.backend(self.frontend(x)))


def validate(model, loader):
    model.eval()
    mae = 0
    with torch.no_grad():
        for img, target in loader:
            mae += (model(img).sum((1, 2, 3)) - target.sum((1, 2, 3))).abs().sum().item()
    return mae / len(loader.dataset)


train_loader = DataLoader(CrowdDataset(320, SEED, True), batch_size=8, shuffle=True)
val_loader = DataLoader(CrowdDataset(60, SEED + 1, False), batch_size=20)
model = CSRNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss(reduction="sum")
for epoch in range(6):
    model.train()
    losses = 0.0
    for img, target in train_loader:
        loss = criterion(model(img), target) / len(img)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += loss.item()
    print(f" * epoch {epoch} loss {losses / len(train_loader):.3f} MAE {validate(model, val_loader):.3f}")
