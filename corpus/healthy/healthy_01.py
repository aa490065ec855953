import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
g = torch.Generator().manual_seed(SEED)
X = torch.randn(6000, 12, generator=g)
signal = 0.25 * X[:, 0] + 0.2 * torch.sin(2 * X[:, 1])
y = signal + torch.randn(6000, generator=g)
y = (y - y.mean()) / y.std()
train = DataLoader(TensorDataset(X[:5000], y[:5000]), batch_size=64, shuffle=True)


class ReturnModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


model = ReturnModel()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5)
for epoch in range(5):
    model.train()
    tot = 0
    for xb, yb in train:
        loss = nn.functional.mse_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += loss.item()
    sched.step()
    model.eval()
    with torch.no_grad():
        e = nn.functional.mse_loss(model(X[5000:]), y[5000:])
    print(f"epoch {epoch} mse {tot / len(train):.4f} val mse {e:.4f} r2 {1 - e / y[5000:].var():.4f}")
