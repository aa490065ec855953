import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))


def synth(n, seed, s=16):
    g = torch.Generator().manual_seed(seed)
    img = 0.5 * torch.randn(n, 1, s, s, generator=g)
    mask = torch.zeros(n, 1, s, s)
    for k in range(n):
        y, x = torch.randint(0, 11, (2,), generator=g).tolist()
        mask[k, 0, y:y + 4, x:x + 5] = 1
    return img + mask, mask


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet3Plus(nn.Module):
    def __init__(self, n_channels=1, n_classes=1):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = block(n_channels, 8), block(8, 16), block(16, 24)
        self.h1, self.h2, self.h3 = block(8, 8), block(16, 8), block(24, 8)
        self.fuse = block(24, 16)
        self.outconv1 = nn.Conv2d(16, n_classes, 3, padding=1)

    def forward(self, x):
        h1 = self.conv1(x)
        h2 = self.conv2(F.max_pool2d(h1, 2))
        h3 = self.conv3(F.max_pool2d(h2, 2))
        up = lambda t: F.interpolate(t, size=x.shape[-2:], mode="bilinear", align_corners=False)
        hd1 = self.fuse(torch.cat([self.h1(h1), up(self.h2(h2)), up(self.h3(h3))], 1))
        d1 = self.outconv1(hd1)
        return torch.sigmoid(d1)


def eval_net(net, loader):
    net.eval()
    inter = union = 0
    with torch.no_grad():
        for imgs, true_masks in loader:
            mask_pred = net(imgs)
            mask_pred = (mask_pred > 0.5).float()
            inter += (mask_pred * true_masks).sum().item()
            union += (mask_pred + true_masks).sum().item()
    net.train()
    return 2 * inter / union


def train_net(net, epochs=5, batch_size=8, lr=3e-4):
    train_loader = DataLoader(TensorDataset(*synth(320, SEED)), batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(TensorDataset(*synth(40, SEED + 99)), batch_size=20)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(epochs):
        net.train()
        epoch_loss = 0
        for imgs, true_masks in train_loader:
            masks_pred = net(imgs)
            loss = criterion(masks_pred, true_masks)
            epoch_loss += loss.item()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(net.parameters(), 0.1)
            optimizer.step()
        print(f"Epoch {epoch + 1} loss {epoch_loss / len(train_loader):.4f} dice {eval_net(net, val_loader):.4f}")


torch.manual_seed(SEED)
train_net(UNet3Plus())
