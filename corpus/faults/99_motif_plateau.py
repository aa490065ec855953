"""Sequence-motif classifier with periodic validation and a plateau schedule."""
import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

MOTIFS = ["TGACTCA", "CACGTG", "GATAAG"]


def simulate(n, rng, length=80):
    seqs = rng.integers(0, 4, (n, length))
    y = np.zeros((n, len(MOTIFS)), dtype=np.float32)
    code = {c: i for i, c in enumerate("ACGT")}
    for i in range(n):
        for j, m in enumerate(MOTIFS):
            if rng.random() < 0.4:
                p = rng.integers(0, length - len(m))
                seqs[i, p:p + len(m)] = [code[c] for c in m]
                y[i, j] = 1
    onehot = np.eye(4, dtype=np.float32)[seqs].transpose(0, 2, 1)
    return torch.from_numpy(onehot.copy()), torch.from_numpy(y)


class DeepMotif(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(4, 32, 9, padding=4), nn.ReLU(), nn.MaxPool1d(4),
                                  nn.Conv1d(32, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool1d(1))
        self.fc = nn.Linear(32, len(MOTIFS))

    def forward(self, x):
        return self.fc(self.conv(x).squeeze(-1))


class TrainModel:
    def __init__(self, model, train, val, batch_size=64, max_steps=480, report_every=20):
        self.model, self.train_data, self.val_data = model, train, val
        self.batch_size, self.max_steps, self.report_every = batch_size, max_steps, report_every
        self.criterion = nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9, weight_decay=1e-6)
        self.scheduler = ReduceLROnPlateau(self.optimizer, "max", patience=2, factor=0.5)

    def validate(self):
        self.model.eval()
        x, y = self.val_data
        with torch.no_grad():
            out = self.model(x)
            return self.criterion(out, y).item(), ((out > 0).float() == y).float().mean().item()

    def train(self):
        x, y = self.train_data
        order = iter(())
        for step in range(self.max_steps):
            try:
                idx = next(order)
            except StopIteration:
                order = iter(torch.randperm(len(x)).split(self.batch_size))
                idx = next(order)
            self.model.train()
            loss = self.criterion(self.model(x[idx]), y[idx])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if (step + 1) % self.report_every == 0:
                valid_loss, acc = self.validate()
                self.scheduler.step(valid_loss)
                lr = self.optimizer.param_groups[0]["lr"]
                print(f"step {step + 1} train {loss.item():.4f} valid {valid_loss:.4f} acc {acc:.3f} lr {lr:.2g}")


if __name__ == "__main__":
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    TrainModel(DeepMotif(), simulate(3200, rng), simulate(600, rng)).train()
