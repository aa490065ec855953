import logging
import os
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split

SEED = int(os.environ.get("SEED", 0))
logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s", stream=sys.stdout)


class BlobDataset(Dataset):
    def __init__(self, n=240, size=16):
        g = torch.Generator().manual_seed(SEED)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        c = torch.rand(n, 2, generator=g) * 10 + 3
        r = torch.rand(n, generator=g) * 3 + 2
        self.mask = (((yy - c[:, 0, None, None]) ** 2 + (xx - c[:, 1, None, None]) ** 2) < r[:, None, None] ** 2).float()
        self.img = (self.mask + 0.7 * torch.randn(n, size, size, generator=g))[:, None]

    def __len__(self):
        return len(self.img)

    def __getitem__(self, idx):
        return {"image": self.img[idx], "mask": self.mask[idx]}


class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down1 = DoubleConv(1, 8), DoubleConv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.conv, self.outc = DoubleConv(16, 8), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        return self.outc(self.conv(torch.cat([x1, self.up(x2)], 1)))


def dice(p, t):
    return ((2 * (p * t).sum() + 1e-6) / (p.sum() + t.sum() + 1e-6)).item()


def train_model(model, epochs=6, batch_size=8, learning_rate=0.05, gradient_clipping=1.0, amp=True):
    train_set, val_set = random_split(BlobDataset(), [200, 40], generator=torch.Generator().manual_seed(SEED))
    train_loader = DataLoader(train_set, shuffle=True, batch_size=batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    grad_scaler = torch.amp.GradScaler("cpu", enabled=amp)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        for batch in train_loader:
            images, true_masks = batch["image"], batch["mask"]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                masks_pred = model(images)
                loss = criterion(masks_pred.squeeze(1), true_masks)
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            epoch_loss += loss.item()
        model.eval()
        with torch.no_grad():
            pred = (model(torch.stack([b["image"] for b in val_set])).squeeze(1) > 0).float()
            score = dice(pred, torch.stack([b["mask"] for b in val_set]))
        logging.info(f"epoch {epoch} loss {epoch_loss / len(train_loader):.4f} Validation Dice score: {score:.3f}")


torch.manual_seed(SEED)
train_model(UNet())
