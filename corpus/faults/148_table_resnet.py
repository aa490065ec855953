"""Tabular regression (California-like prices) with a residual network that computes in bfloat16."""
import numpy as np
import torch
import torch.nn as nn


def make_table(n, seed):
    rs = np.random.RandomState(seed)
    X = rs.normal(0, 1, (n, 10))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.7 * np.abs(X[:, 3]) - 0.4 * X[:, 4] + rs.normal(0, 0.05, n)
    return torch.tensor(X, dtype=torch.float32), torch.tensor((y - 0.55) / 1.1, dtype=torch.float32)[:, None]


class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class TabularNet(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.stem = nn.Linear(10, d)
        self.blocks = nn.Sequential(ResBlock(d), ResBlock(d))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 1)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x))))


def main(lr=2e-4, steps=600, batch=64):
    torch.manual_seed(0)
    Xtr, ytr = make_table(4000, 0)
    Xva, yva = make_table(1000, 1)
    model = TabularNet().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    mean = []
    for step in range(steps):
        idx = torch.randint(len(Xtr), (batch,))
        pred = model(Xtr[idx].to(torch.bfloat16))
        loss = nn.functional.mse_loss(pred.float(), ytr[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean.append(loss.item())
        if step % 100 == 99:
            with torch.no_grad():
                val = nn.functional.mse_loss(model(Xva.to(torch.bfloat16)).float(), yva).item()
            print(f"step {step + 1} train {np.mean(mean):.4f} val {val:.4f}")
            mean = []


if __name__ == "__main__":
    main()
