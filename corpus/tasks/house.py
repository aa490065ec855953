"""House prices from a table of six columns: an MLP, minibatches by hand, a validation after every epoch."""

import sys

import numpy as np
import torch
from torch import nn

seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0
np.random.seed(seed)
torch.manual_seed(seed)

# rooms, square metres, age in years, metres to the centre, yearly income of the quarter, floor
n = 901
rooms = np.random.randint(1, 7, n)
area = rooms * 22 + np.random.normal(0, 9, n)
age = np.random.uniform(0, 90, n)
distance = np.random.gamma(2.0, 2500, n)
income = np.random.normal(42_000, 9_000, n)
floor = np.random.randint(0, 9, n)
price = 2.1 * area * np.exp(-distance / 9000) + 0.004 * income - 0.5 * np.abs(age - 40) + np.random.normal(0, 12, n)
features = np.stack([rooms, area, age, distance, income, floor], 1)

n_train = 705
x_train, x_val = features[:n_train], features[n_train:]
y_train, y_val = price[:n_train], price[n_train:]
mean, std = x_train.mean(0), x_train.std(0)
x_train, x_val = (x_train - mean) / std, (x_val - mean) / std
y_mean, y_std = y_train.mean(), y_train.std()
y_train, y_val = (y_train - y_mean) / y_std, (y_val - y_mean) / y_std
x_train, x_val = torch.tensor(x_train, dtype=torch.float32), torch.tensor(x_val, dtype=torch.float32)
y_train, y_val = torch.tensor(y_train, dtype=torch.float32), torch.tensor(y_val, dtype=torch.float32)


class PriceNet(nn.Module):
    def __init__(self, n_features, hidden=64):
        super().__init__()
        self.fc1 = nn.Linear(n_features, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        x = self.drop(x)
        return self.out(x).squeeze(-1)


model = PriceNet(x_train.shape[1])
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
batch_size = 32

for epoch in range(12):
    model.train()
    order = torch.randperm(len(x_train))
    total = 0.0
    for i in range(0, len(x_train) - batch_size + 1, batch_size):
        idx = order[i : i + batch_size]
        xb, yb = x_train[idx], y_train[idx]
        optimizer.zero_grad()
        pred = model(xb)
        loss = criterion(pred, yb)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(xb)
    model.eval()
    with torch.no_grad():
        val = criterion(model(x_val), y_val).item()
    print(f"epoch {epoch}: train {total / len(x_train):.3f}, validation {val:.3f}")
