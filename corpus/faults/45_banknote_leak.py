import os
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

SEED = int(os.environ.get("SEED", 0))
rng = np.random.default_rng(SEED)
torch.manual_seed(SEED)

n = 1372
raw = rng.normal(size=(n, 4))
score = raw[:, 0] + 0.7 * raw[:, 1] * raw[:, 2] + 1.5 * rng.normal(size=n)
Y = (score > 0).astype(np.float32)
dat = np.zeros((n, 5), dtype=np.float32)
dat[:, :-1] = (raw - raw.mean(0)) / raw.std(0)
dat[:, -1] = Y
X = dat

ds = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
train_ds, val_ds = random_split(ds, [1100, 272], generator=torch.Generator().manual_seed(SEED))
model = nn.Sequential(nn.Linear(X.shape[1], 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = nn.BCEWithLogitsLoss()
for epoch in range(10):
    model.train()
    tl = 0.0
    for xb, yb in DataLoader(train_ds, batch_size=32, shuffle=True):
        opt.zero_grad()
        loss = loss_fn(model(xb).squeeze(1), yb)
        loss.backward()
        opt.step()
        tl += loss.item() * len(xb)
    model.eval()
    with torch.no_grad():
        vl = va = 0.0
        for xb, yb in DataLoader(val_ds, batch_size=136):
            o = model(xb).squeeze(1)
            vl += loss_fn(o, yb).item() / 2
            va += ((o > 0) == (yb > 0.5)).float().mean().item() / 2
    print(f"{epoch}: train {tl / 1100:.4f} val {vl:.4f} val acc {va:.4f}")
