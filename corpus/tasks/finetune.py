"""Transfer: a backbone is pretrained on odd against even, frozen, and gets a new head for the ten digits."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 24, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(24)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return x.flatten(1)


class Classifier(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(24 * 16, n_classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def loop(model, loader, optimizer, epochs):
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"  epoch {epoch}: {loss.item():.4f}")


parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
torch.manual_seed(parser.parse_args().seed)
digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)

print("pretraining")
pretrain = DataLoader(TensorDataset(x[:900], y[:900] % 2), batch_size=60, shuffle=True)
first = Classifier(Backbone(), 2)
loop(first, pretrain, torch.optim.Adam(first.parameters(), lr=2e-3), epochs=4)

print("fine-tuning")
train = DataLoader(TensorDataset(x[900:], y[900:]), batch_size=64, shuffle=True)
model = Classifier(first.backbone, 10)
for p in model.backbone.parameters():
    p.requires_grad = False
model.backbone.eval()
optimizer = torch.optim.Adam(model.head.parameters(), lr=5e-3)
loop(model, train, optimizer, epochs=8)
