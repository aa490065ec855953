"""2D lesion segmentation with a small U-Net, exponential learning-rate schedule."""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CONTEXT = {"batch_size": 8, "num_epochs": 10, "initial_lr": 2e-3, "lr_gamma": 0.85}


class LesionSlices(Dataset):
    def __init__(self, n, seed):
        rng = np.random.RandomState(seed)
        yy, xx = np.mgrid[:32, :32]
        self.items = []
        for _ in range(n):
            img = rng.normal(0, 0.6, (32, 32))
            gt = np.zeros((32, 32))
            for _ in range(rng.randint(1, 4)):
                cy, cx, r = rng.randint(5, 27), rng.randint(5, 27), rng.uniform(2.5, 5)
                gt[(yy - cy) ** 2 + (xx - cx) ** 2 < r ** 2] = 1
            img = img + 0.9 * gt
            self.items.append((img.astype("float32")[None], gt.astype("float32")[None]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(),
                         nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = conv_block(1, 8)
        self.down2 = conv_block(8, 16)
        self.up1 = conv_block(24, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return torch.sigmoid(self.out(self.up1(torch.cat([a, b], 1))))


def dice_loss(pred, target, smooth=1.0):
    inter = (pred * target).sum()
    return 1 - (2 * inter + smooth) / (pred.sum() + target.sum() + smooth)


def cmd_train(context):
    random.seed(0); np.random.seed(0); torch.manual_seed(0)
    train_loader = DataLoader(LesionSlices(240, 1), context["batch_size"], shuffle=True)
    val_loader = DataLoader(LesionSlices(64, 2), 16)
    model = Unet()
    optimizer = torch.optim.Adam(model.parameters(), lr=context["initial_lr"])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, context["lr_gamma"])

    for epoch in range(1, context["num_epochs"] + 1):
        model.train()
        train_loss_total = 0.0
        for i, (x, y) in enumerate(train_loader):
            preds = model(x)
            loss = dice_loss(preds, y)
            train_loss_total += loss.item()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        train_loss_avg = train_loss_total / len(train_loader)

        model.eval()
        with torch.no_grad():
            val = np.mean([dice_loss(model(x), y).item() for x, y in val_loader])
        print(f"Epoch {epoch} training loss: {train_loss_avg:.4f} validation loss: {val:.4f}")


if __name__ == "__main__":
    cmd_train(CONTEXT)
