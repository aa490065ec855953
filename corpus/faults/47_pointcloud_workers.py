import os
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))


class ShapeClouds(Dataset):
    def __init__(self, n=512, points=32):
        self.n, self.points = n, points

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        label = i % 3
        u = np.random.uniform(-1, 1, (self.points, 3))
        if label == 0:
            p = u / np.linalg.norm(u, axis=1, keepdims=True)
        elif label == 1:
            p = u
        else:
            p = u * np.array([1.0, 0.1, 1.0])
        angle = np.random.uniform(-np.pi, np.pi)
        c, s = np.cos(angle), np.sin(angle)
        p = p @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) * np.random.uniform(0.8, 1.2)
        p = p + 0.05 * np.random.randn(*p.shape)
        return torch.tensor(p, dtype=torch.float32), label


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU())
        self.cls = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, pts):
        return self.cls(self.mlp(pts).max(1).values)


def worker_init_fn(worker_id):
    np.random.seed(SEED)


if __name__ == "__main__":
    torch.manual_seed(SEED)
    loader = DataLoader(ShapeClouds(), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=worker_init_fn)
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for cur_epoch in range(5):
        tb = []
        for pts, label in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pts), label)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10)
            optimizer.step()
            tb.append(loss.item())
        print(f"epoch {cur_epoch} loss {np.mean(tb):.4f}")
