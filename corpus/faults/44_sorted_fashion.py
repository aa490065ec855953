import argparse
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, 1, 1)
        self.conv2 = nn.Conv2d(12, 24, 3, 1, 1)
        self.fc1 = nn.Linear(24 * 4, 48)
        self.fc2 = nn.Linear(48, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def load_split(kind):
    d = load_digits()
    order = np.random.default_rng(SEED).permutation(len(d.target))
    ids = order[:1440] if kind == "train" else order[1440:]
    if kind == "train":
        ids = np.concatenate([ids[d.target[ids] == c] for c in range(10)])
    return TensorDataset(torch.tensor(d.images[ids], dtype=torch.float32)[:, None] / 16, torch.tensor(d.target[ids]))


def train(args, model, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(loader.dataset)}] Loss: {loss.item():.4f}")


def test(model, loader):
    model.eval()
    with torch.no_grad():
        out = [(F.nll_loss(model(d), t, reduction="sum").item(), (model(d).argmax(1) == t).sum().item()) for d, t in loader]
    n = len(loader.dataset)
    print(f"Test set: Average loss: {sum(o[0] for o in out) / n:.4f}, Accuracy: {100 * sum(o[1] for o in out) / n:.1f}%")


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--log-interval", type=int, default=15)
args = parser.parse_args()
torch.manual_seed(SEED)
train_set, test_set = load_split("train"), load_split("test")
train_loader = DataLoader(train_set, batch_size=args.batch_size)
test_loader = DataLoader(test_set, batch_size=128)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.5)
for epoch in range(1, args.epochs + 1):
    train(args, model, train_loader, optimizer, epoch)
    test(model, test_loader)
