import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class BasicDataset(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.pairs = []
        for _ in range(n):
            mask = np.zeros((16, 16), dtype=np.uint8)
            y, x = rng.integers(1, 9, 2)
            mask[y:y + 6, x:x + 6] = 255
            img = np.clip(mask * 0.4 + 60 + rng.normal(0, 40, mask.shape), 0, 255).astype(np.uint8)
            self.pairs.append((img, mask))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        img, mask = (torch.from_numpy(a).float().unsqueeze(0) for a in self.pairs[i])
        return img / 255.0, mask


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        conv = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        self.inc, self.down, self.up = conv(1, 8), conv(8, 16), conv(24, 8)
        self.outc = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = F.interpolate(self.down(F.max_pool2d(x1, 2)), scale_factor=2)
        return self.outc(self.up(torch.cat([x1, x2], 1)))


net = UNet()
train = DataLoader(BasicDataset(240, SEED), batch_size=6, shuffle=True)
val = BasicDataset(40, SEED + 1)
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-8)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(5):
    net.train()
    epoch_loss = 0
    for i, (imgs, true_masks) in enumerate(train):
        masks_pred = net(imgs)
        loss = criterion(masks_pred, true_masks)
        epoch_loss += loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        x, m = (torch.stack(t) for t in zip(*[val[i] for i in range(len(val))]))
        p, m = (net(x) > 0).float(), (m > 0).float()
        dice = (2 * (p * m).sum() / (p.sum() + m.sum())).item()
    print('Epoch finished ! Loss: {:.3f} Validation Dice Coeff: {:.3f}'.format(epoch_loss / (i + 1), dice))
