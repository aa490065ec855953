import os
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
np.random.seed(SEED)
torch.manual_seed(SEED)


class Normalize:
    def __init__(self, mean=0.485, std=0.229, max_pixel_value=255.0):
        self.mean, self.std = mean * max_pixel_value, std * max_pixel_value

    def __call__(self, img):
        return (img - self.mean) / self.std


class NucleiDataset(Dataset):
    def __init__(self, n, transform):
        self.transform = transform
        self.items = []
        for _ in range(n):
            mask = np.zeros((16, 16), np.uint8)
            for _ in range(2):
                r, c = np.random.randint(1, 11, 2)
                mask[r:r + 4, c:c + 4] = 1
            img = np.clip(80 + 70 * mask + 30 * np.random.randn(16, 16), 0, 255).astype(np.uint8)
            self.items.append((img, mask))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, idx):
        img, mask = self.items[idx]
        img = img.astype('float32') / 255
        img = self.transform(img)
        return torch.from_numpy(img.astype('float32'))[None], torch.from_numpy(mask.astype('float32'))[None]


class BCEDiceLoss(nn.Module):
    def forward(self, input, target):
        bce = nn.functional.binary_cross_entropy_with_logits(input, target)
        p = torch.sigmoid(input).flatten(1)
        t = target.flatten(1)
        dice = (2. * (p * t).sum(1) + 1e-5) / (p.sum(1) + t.sum(1) + 1e-5)
        return 0.5 * bce + 1 - dice.mean()


def iou_score(output, target):
    o, t = output > 0, target > 0.5
    return ((o & t).sum() / (o | t).sum().clamp(min=1)).item()


model = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(),
                      nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))
train_loader = DataLoader(NucleiDataset(256, Normalize()), batch_size=8, shuffle=True, drop_last=True)
val_loader = DataLoader(NucleiDataset(64, Normalize()), batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
criterion = BCEDiceLoss()
for epoch in range(6):
    meters = []
    for input, target in train_loader:
        output = model(input)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meters.append((loss.item(), iou_score(output, target)))
    with torch.no_grad():
        viou = np.mean([iou_score(model(i), t) for i, t in val_loader])
    m = np.mean(meters, 0)
    print('Epoch [%d/6] loss %.4f - iou %.4f - val_iou %.4f' % (epoch, m[0], m[1], viou))
