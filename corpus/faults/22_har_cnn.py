import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
np.random.seed(SEED)
torch.manual_seed(SEED)


class data_loader(Dataset):
    def __init__(self, samples, labels):
        self.samples = samples
        self.labels = labels

    def __getitem__(self, index):
        return torch.from_numpy(self.samples[index]), self.labels[index]

    def __len__(self):
        return len(self.samples)


def make_windows(n, length=64):
    labels = np.random.randint(0, 8, n)
    t = np.arange(length) / length
    freq = 2 + 1.5 * (labels % 4)
    phase = np.random.rand(n, 3, 1) * 2 * np.pi
    x = np.sin(2 * np.pi * freq[:, None, None] * t + phase)
    x[:, 2] *= (labels >= 4)[:, None]
    return (x + 0.5 * np.random.randn(n, 3, length)).astype(np.float32), labels


class Network(nn.Module):
    def __init__(self):
        super(Network, self).__init__()
        self.conv1 = nn.Sequential(nn.Conv1d(3, 16, 9), nn.ReLU(), nn.MaxPool1d(2))
        self.conv2 = nn.Sequential(nn.Conv1d(16, 16, 9), nn.ReLU(), nn.MaxPool1d(2))
        self.fc1 = nn.Sequential(nn.Linear(160, 64), nn.ReLU())
        self.fc2 = nn.Sequential(nn.Linear(64, 8))

    def forward(self, x):
        out = self.conv2(self.conv1(x))
        out = self.fc1(out.reshape(out.size(0), -1))
        out = self.fc2(out)
        return F.softmax(out, dim=1)


train_loader = DataLoader(data_loader(*make_windows(1600)), batch_size=32, shuffle=True)
test_loader = DataLoader(data_loader(*make_windows(400)), batch_size=100)
model = Network()
optimizer = optim.SGD(params=model.parameters(), lr=0.02, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for e in range(7):
    model.train()
    total_loss = 0
    for sample, target in train_loader:
        output = model(sample)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss.item()
    model.eval()
    with torch.no_grad():
        correct = sum((model(s).argmax(1) == t).sum().item() for s, t in test_loader)
    print(f'Epoch: [{e + 1}/7], loss: {total_loss / len(train_loader):.4f}, test acc: {correct / 4:.2f}%')
