import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(18)
rng = np.random.RandomState(18)
INPUT_SIZE, HORIZON = 36, 6


def load_panel(n_series=10, length=260):
    t = np.arange(length)
    panel = []
    for k in range(n_series):
        y = 50 + 10 * k + 0.03 * t + 8 * np.sin(2 * np.pi * t / 12 + k) + 3 * np.sin(2 * np.pi * t / 30) + rng.randn(length)
        panel.append(y)
    panel = np.array(panel)
    panel[6, 3] = np.nan
    panel[6, 4] = np.nan
    return panel


def clean(panel):
    panel = panel.copy()
    mean, std = np.nanmean(panel, axis=1, keepdims=True), np.nanstd(panel, axis=1, keepdims=True)
    return (panel - mean) / std


def windows(panel, start, end):
    xs, ys = [], []
    for y in panel:
        for s in range(start, end - INPUT_SIZE - HORIZON + 1):
            xs.append(y[s:s + INPUT_SIZE])
            ys.append(y[s + INPUT_SIZE:s + INPUT_SIZE + HORIZON])
    return TensorDataset(torch.tensor(np.array(xs), dtype=torch.float32), torch.tensor(np.array(ys), dtype=torch.float32))


class Block(nn.Module):
    def __init__(self, units=48):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(INPUT_SIZE, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU())
        self.theta = nn.Linear(units, INPUT_SIZE + HORIZON)

    def forward(self, x):
        out = self.theta(self.layers(x))
        return out[:, :INPUT_SIZE], out[:, INPUT_SIZE:]


class NBEATS(nn.Module):
    def __init__(self, n_blocks=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(n_blocks)])

    def forward(self, x):
        forecast = x[:, -1:].repeat(1, HORIZON)
        for block in self.blocks:
            backcast, f = block(x)
            x = x - backcast
            forecast = forecast + f
        return forecast


panel = clean(load_panel())
train_dl = DataLoader(windows(panel, 0, 210), batch_size=32, shuffle=True)
val_dl = DataLoader(windows(panel, 210, 260), batch_size=90)
model = NBEATS()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(7):
    model.train()
    train_loss = []
    for x, y in train_dl:
        optimizer.zero_grad()
        loss = (model(x) - y).abs().mean()
        loss.backward()
        optimizer.step()
        train_loss.append(loss.item())
    model.eval()
    with torch.no_grad():
        val = np.mean([(model(x) - y).abs().mean().item() for x, y in val_dl])
    print('epoch %d  train mae %.4f  val mae %.4f' % (epoch, np.mean(train_loss), val))
