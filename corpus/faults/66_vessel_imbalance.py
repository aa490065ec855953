import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class LesionDataset(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.img = torch.randn(n, 1, 24, 24, generator=g)
        self.gt = torch.zeros(n, 1, 24, 24)
        for k in range(n):
            y, x = torch.randint(1, 20, (2,), generator=g).tolist()
            self.gt[k, 0, y:y + 3, x:x + 3] = 1
        self.img += 1.1 * self.gt

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        return self.img[i], self.gt[i]


net = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
loader = DataLoader(LesionDataset(256, SEED), batch_size=8, shuffle=True)
x_val, y_val = (torch.stack(t) for t in zip(*LesionDataset(64, SEED + 1)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(6):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        p = net(x_val) > 0
        tp = (p & (y_val > 0)).sum().item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} pixel acc {((p == (y_val > 0)).float().mean()):.4f} "
              f"recall {tp / y_val.sum().item():.3f} precision {tp / max(1, p.sum().item()):.3f}")
