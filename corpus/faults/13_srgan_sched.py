import argparse
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=12, type=int)
parser.add_argument("--batch-size", default=32, type=int)
parser.add_argument("--lr", default=2e-3, type=float)


class DatasetFromImages(Dataset):
    def __init__(self, hr):
        self.hr = hr
        self.lr = F.avg_pool2d(hr, 2)

    def __getitem__(self, index):
        return self.lr[index], self.hr[index]

    def __len__(self):
        return len(self.hr)


class ResidualBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv1, self.prelu, self.conv2 = nn.Conv2d(ch, ch, 3, padding=1), nn.PReLU(), nn.Conv2d(ch, ch, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(self.prelu(self.conv1(x)))


class Generator(nn.Module):
    def __init__(self, ch=20):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(1, ch, 3, padding=1), nn.PReLU())
        self.trunk = nn.Sequential(ResidualBlock(ch), ResidualBlock(ch))
        self.subpixel_conv = nn.Sequential(nn.Conv2d(ch, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        x = self.conv1(x)
        return self.subpixel_conv(x + self.trunk(x))


def main():
    args = parser.parse_args()
    torch.manual_seed(SEED)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
    dataloader = DataLoader(DatasetFromImages(images[:1200]), batch_size=args.batch_size, shuffle=True)
    netG = Generator()
    optimizerG = torch.optim.Adam(netG.parameters(), lr=args.lr, betas=(0.9, 0.999))
    schedulerG = torch.optim.lr_scheduler.StepLR(optimizerG, step_size=args.epochs // 2, gamma=0.1)
    for epoch in range(args.epochs):
        netG.train()
        for i, (lr, hr) in enumerate(dataloader):
            netG.zero_grad()
            sr = netG(lr)
            mse_loss = F.mse_loss(sr, hr)
            mse_loss.backward()
            optimizerG.step()
            if i == len(dataloader) - 1:
                print(f"[{epoch + 1}/{args.epochs}][{i + 1}/{len(dataloader)}] MSE loss: {mse_loss.item():.6f}")
            schedulerG.step()

    with torch.no_grad():
        v = images[1200:]
        mse = F.mse_loss(netG(F.avg_pool2d(v, 2)), v)
        print("PSNR %.2f dB, bilinear mse %.4f" % (-10 * mse.log10().item(), F.mse_loss(F.interpolate(F.avg_pool2d(v, 2), scale_factor=2, mode="bilinear"), v)))


main()
