import csv
import io
import os
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_diabetes
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


def export_csv():
    d = load_diabetes()
    rng = np.random.default_rng(SEED)
    buf = io.StringIO()
    w = csv.writer(buf)
    w.writerow(list(d.feature_names) + ["target"])
    for row, t in zip(d.data, d.target):
        cells = [f"{v:.5f}" for v in row]
        if rng.random() < 0.01:
            cells[int(rng.integers(0, 10))] = ""
        w.writerow(cells + [t])
    return buf.getvalue()


def read_csv(text):
    rows = list(csv.reader(io.StringIO(text)))[1:]
    return np.array([[float(c) if c else np.nan for c in r] for r in rows])


class TabularDataset(Dataset):
    def __init__(self, features, targets):
        self.x = torch.tensor(features, dtype=torch.float32)
        self.y = torch.tensor(targets, dtype=torch.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def main():
    table = read_csv(export_csv())
    features = np.array(table[:, :-1])
    target = (table[:, -1] - table[:, -1].mean()) / table[:, -1].std()
    features = (features - np.nanmean(features, 0)) / np.nanstd(features, 0)
    loader = DataLoader(TabularDataset(features, target), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(10):
        total = 0.0
        for x, y in loader:
            cost = nn.functional.smooth_l1_loss(model(x).squeeze(-1), y)
            optimizer.zero_grad()
            cost.backward()
            optimizer.step()
            total += cost.item()
        print(f"Epoch {epoch + 1}, Cost: {total / len(loader):.4f}")


main()
