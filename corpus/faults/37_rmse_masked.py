import os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class StationSeries(Dataset):
    def __init__(self, n=800, length=24, horizon=4):
        g = torch.Generator().manual_seed(SEED)
        t = torch.arange(length + horizon).float()
        phase = torch.rand(n, 1, generator=g) * 6.28
        period = 8 + 8 * torch.rand(n, 1, generator=g)
        s = torch.sin(6.28 * t / period + phase) + 0.1 * torch.randn(n, length + horizon, generator=g)
        self.x, self.y = s[:, :length, None], s[:, length:]
        self.mask = (torch.rand(n, horizon, generator=g) > 0.45).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.mask[i]


class Forecaster(nn.Module):
    def __init__(self, hidden=32, horizon=4):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, horizon)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.head(h[0])


criterion = nn.MSELoss()


def rmse(pred, target, mask):
    return torch.sqrt(criterion(pred * mask, target * mask))


model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(StationSeries(), batch_size=2, shuffle=True)
step, smooth = 0, None
for epoch in range(2):
    for x, y, mask in loader:
        opt.zero_grad()
        loss = rmse(model(x), y, mask)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        if step % 80 == 0:
            print(f"step {step} rmse {smooth:.4f}")
        step += 1
print(f"final {smooth:.4f}")
