import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
N_CLASSES = 1


class CarvanaLike(Dataset):
    def __init__(self, length):
        g = torch.Generator().manual_seed(SEED)
        self.masks = torch.zeros(length, 16, 16, dtype=torch.long)
        for m in self.masks:
            top, left, h, w = torch.randint(2, 8, (4,), generator=g).tolist()
            m[top:top + h, left:left + w] = 1
        self.images = self.masks[:, None].float() + 0.6 * torch.randn(length, 1, 16, 16, generator=g)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, i):
        return {"image": self.images[i], "mask": self.masks[i].clamp(max=N_CLASSES - 1)}


class MiniUNet(nn.Module):
    def __init__(self, n_channels, n_classes):
        super().__init__()
        self.inc = nn.Sequential(nn.Conv2d(n_channels, 12, 3, padding=1), nn.ReLU())
        self.down = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(24, 12, 2, 2)
        self.outc = nn.Conv2d(24, n_classes, 1)

    def forward(self, x):
        a = self.inc(x)
        return self.outc(torch.cat([a, self.up(self.down(a))], 1))


net = MiniUNet(1, N_CLASSES)
loader = DataLoader(CarvanaLike(256), batch_size=8, shuffle=True)
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for epoch in range(5):
    epoch_loss, hits, n = 0.0, 0, 0
    for batch in loader:
        masks_pred = net(batch["image"])
        loss = criterion(masks_pred, batch["mask"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
        hits += (masks_pred.argmax(1) == batch["mask"]).sum().item()
        n += batch["mask"].numel()
    print(f"Epoch {epoch + 1} loss (batch) {epoch_loss / len(loader):.5f} pixel acc {hits / n:.4f}")
