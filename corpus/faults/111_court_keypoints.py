import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(11)
rng = np.random.RandomState(11)
SIZE = 24


def draw_heatmap(x, y, sigma=1.5):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    return np.exp(-((xx - x) ** 2 + (yy - y) ** 2) / (2 * sigma ** 2))


class CourtDataset(Dataset):
    def __init__(self, n):
        self.samples = []
        for _ in range(n):
            x0, x1 = rng.randint(2, 9), rng.randint(14, 22)
            y0, y1 = rng.randint(2, 9), rng.randint(14, 22)
            img = 0.1 * rng.randn(SIZE, SIZE)
            img[y0, x0:x1 + 1] += 1
            img[y1, x0:x1 + 1] += 1
            img[y0:y1 + 1, x0] += 1
            img[y0:y1 + 1, x1] += 1
            img[(y0 + y1) // 2, x0:x1 + 1] += 1
            kps = [(x0, y0), (x1, y0), (x0, y1), (x1, y1)]
            hm = np.stack([draw_heatmap(x, y) for x, y in kps])
            self.samples.append((img[None].astype(np.float32), hm.astype(np.float32),
                                 np.array(kps, dtype=np.float32)))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


class ConvBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())

    def forward(self, x):
        return self.block(x)


class BallTrackerNet(nn.Module):
    def __init__(self, out_channels=4):
        super().__init__()
        self.conv1 = ConvBlock(1, 16)
        self.conv2 = ConvBlock(16, 24)
        self.conv3 = ConvBlock(24, 24)
        self.conv4 = ConvBlock(24, 16)
        self.conv5 = nn.Conv2d(16, out_channels, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.Upsample(scale_factor=2)

    def forward(self, x):
        x = self.pool(self.conv1(x))
        x = self.conv3(self.conv2(x))
        x = self.conv4(self.up(x))
        return self.conv5(x)


def train(model, train_loader, optimizer, criterion, epoch):
    model.train()
    losses = []
    for iter_id, batch in enumerate(train_loader):
        out = model(batch[0])
        loss = criterion(torch.sigmoid(out), batch[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print('train | epoch = {}, loss = {:.5f}'.format(epoch, np.mean(losses)))


def val(model, val_loader, criterion, epoch):
    model.eval()
    losses, dists = [], []
    with torch.no_grad():
        for imgs, hms, kps in val_loader:
            out = torch.sigmoid(model(imgs))
            losses.append(criterion(out, hms).item())
            idx = out.flatten(2).argmax(-1)
            pred = torch.stack([idx % SIZE, idx // SIZE], dim=-1).float()
            dists.append((pred - kps).norm(dim=-1).flatten())
    d = torch.cat(dists)
    print('val   | epoch = {}, loss = {:.5f}, mean dist = {:.2f} px, within 2 px = {:.3f}'.format(
        epoch, np.mean(losses), d.mean().item(), (d <= 2).float().mean().item()))


if __name__ == '__main__':
    train_loader = DataLoader(CourtDataset(320), batch_size=16, shuffle=True)
    val_loader = DataLoader(CourtDataset(64), batch_size=16, shuffle=False)
    model = BallTrackerNet()
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.999), weight_decay=0)
    for epoch in range(8):
        train(model, train_loader, optimizer, criterion, epoch)
        val(model, val_loader, criterion, epoch)
