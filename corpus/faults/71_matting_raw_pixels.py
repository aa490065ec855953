import os
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class MatTransform:
    def __init__(self, flip=True):
        self.flip = flip

    def __call__(self, img, alpha, rng):
        if self.flip and rng.random() < 0.5:
            img, alpha = img[:, :, ::-1], alpha[:, ::-1]
        return np.ascontiguousarray(img), np.ascontiguousarray(alpha)


class MatDataset(Dataset):
    def __init__(self, n, seed, transform):
        self.rng = np.random.default_rng(seed)
        self.transform, self.samples = transform, []
        yy, xx = np.mgrid[0:12, 0:12]
        for _ in range(n):
            cy, cx = self.rng.uniform(3, 9, 2)
            a = np.clip(1.5 - np.hypot(yy - cy, xx - cx) / 3, 0, 1)
            fg, bg = self.rng.uniform(150, 220, (3, 1, 1)), self.rng.uniform(40, 120, (3, 1, 1))
            img = np.clip(a * fg + (1 - a) * bg + self.rng.normal(0, 10, (3, 12, 12)), 0, 255).astype(np.uint8)
            self.samples.append((img, a.astype(np.float32)))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        img, alpha = self.transform(*self.samples[i], self.rng)
        return torch.from_numpy(img).float(), torch.from_numpy(alpha).float()


class VGG16Mat(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1_1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv1_2 = nn.Conv2d(16, 16, 3, padding=1)
        self.conv2_1 = nn.Conv2d(16, 24, 3, padding=1)
        self.deconv1 = nn.Conv2d(24, 1, 5, padding=2)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.xavier_normal_(m.weight)

    def forward(self, x):
        x = torch.relu(self.conv1_2(torch.relu(self.conv1_1(x))))
        x = torch.relu(self.conv2_1(x))
        return torch.sigmoid(self.deconv1(x)).squeeze(1)


def gen_loss(pred, alpha):
    return torch.sqrt((pred - alpha) ** 2 + 1e-12).mean()


train = DataLoader(MatDataset(320, SEED, MatTransform()), batch_size=8, shuffle=True)
val = DataLoader(MatDataset(64, SEED + 1, MatTransform(False)), batch_size=32)
model = VGG16Mat()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    total = 0.0
    for img, alpha in train:
        optimizer.zero_grad()
        loss = gen_loss(model(img), alpha)
        loss.backward()
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        sad = sum((model(i) - a).abs().mean().item() for i, a in val) / len(val)
    print(f"Epoch[{epoch}] Loss:{total / len(train):.5f} val SAD:{sad:.5f}")
