import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, random_split


class SpotDataset(Dataset):
    def __init__(self):
        d = load_digits()
        self.x = torch.tensor(d.data, dtype=torch.float32) / 16.0
        self.y = torch.tensor(d.target)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class DataModule:
    def __init__(self, batch_size=64, validation_split=0.25, seed=0):
        self.batch_size, self.validation_split, self.seed = batch_size, validation_split, seed

    def setup(self):
        self.dataset = SpotDataset()
        n_val = int(len(self.dataset) * self.validation_split)
        self.train_dataset, self.val_dataset = random_split(
            self.dataset, [len(self.dataset) - n_val, n_val], generator=torch.Generator().manual_seed(self.seed))

    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_dataset, batch_size=256)


class Classifier(nn.Module):
    def __init__(self, p=0.2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(p), nn.Linear(128, 10))

    def forward(self, x):
        return self.net(x)


class Fitter:
    def __init__(self, module, max_epochs):
        self.module, self.max_epochs = module, max_epochs
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=1e-2)

    def fit(self, dm):
        dm.setup()
        train, val = dm.train_dataloader(), dm.val_dataloader()
        for epoch in range(self.max_epochs):
            self.module.train()
            for x, y in train:
                loss = nn.functional.cross_entropy(self.module(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            self.module.eval()
            with torch.no_grad():
                pairs = [(self.module(x), y) for x, y in val]
                vl = sum(nn.functional.cross_entropy(o, y, reduction="sum").item() for o, y in pairs) / len(dm.val_dataset)
                acc = sum((o.argmax(1) == y).sum().item() for o, y in pairs) / len(dm.val_dataset)
            print(f"epoch {epoch:2d} train {loss.item():.4f} val {vl:.4f} acc {acc:.4f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    Fitter(Classifier(), 14).fit(DataModule())
