import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))


def make_scenes(n, gen, size=16):
    imgs = 0.4 * torch.randn(n, 1, size, size, generator=gen)
    lbls = torch.zeros(n, size, size, dtype=torch.long)
    for i in range(n):
        for cls in (1, 2):
            h, w = torch.randint(4, 8, (2,), generator=gen).tolist()
            y, x = int(torch.randint(0, size - h, (1,), generator=gen)), int(torch.randint(0, size - w, (1,), generator=gen))
            imgs[i, 0, y:y + h, x:x + w] += 1.5 if cls == 1 else -1.5
            lbls[i, y:y + h, x:x + w] = cls
    return imgs, lbls


class FCN(nn.Module):
    def __init__(self, n_class=3):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.conv2 = nn.Sequential(nn.Conv2d(16, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Dropout2d(0.2))
        self.conv3 = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Dropout2d(0.2))
        self.up = nn.ConvTranspose2d(24, 16, 2, 2)
        self.score = nn.Conv2d(32, n_class, 1)

    def forward(self, x):
        c1 = self.conv1(x)
        return self.score(torch.cat([c1, self.up(self.conv3(self.conv2(c1)))], 1))


class Trainer:
    def __init__(self, model, optimizer, train_loader, val_loader, max_epoch, interval_validate):
        self.model, self.optim = model, optimizer
        self.train_loader, self.val_loader = train_loader, val_loader
        self.max_epoch, self.interval_validate = max_epoch, interval_validate
        self.iteration = 0

    def validate(self):
        self.model.eval()
        loss, hit, n = 0, 0, 0
        with torch.no_grad():
            for data, target in self.val_loader:
                score = self.model(data)
                loss += nn.functional.cross_entropy(score, target).item()
                hit += (score.argmax(1) == target).sum().item()
                n += target.numel()
        print(f"val it {self.iteration} loss {loss / len(self.val_loader):.4f} acc {hit / n:.4f}")

    def train_epoch(self):
        self.model.train()
        for data, target in self.train_loader:
            if self.iteration % self.interval_validate == 0 and self.iteration > 0:
                self.validate()
            self.optim.zero_grad()
            loss = nn.functional.cross_entropy(self.model(data), target)
            loss.backward()
            self.optim.step()
            if self.iteration % 10 == 0:
                print(f"train it {self.iteration} loss {loss.item():.4f}")
            self.iteration += 1

    def train(self):
        for _ in range(self.max_epoch):
            self.train_epoch()


torch.manual_seed(SEED)
gen = torch.Generator().manual_seed(SEED)
train_loader = DataLoader(TensorDataset(*make_scenes(320, gen)), batch_size=8, shuffle=True)
val_loader = DataLoader(TensorDataset(*make_scenes(64, gen)), batch_size=32)
model = FCN()
optim = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
Trainer(model, optim, train_loader, val_loader, max_epoch=5, interval_validate=15).train()
