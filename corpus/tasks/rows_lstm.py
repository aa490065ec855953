"""Reads a handwritten digit row by row with an LSTM."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0
torch.manual_seed(SEED)


class RowReader(nn.Module):
    def __init__(self, input_size=8, hidden_size=48, num_classes=10):
        super().__init__()
        self.hidden_size = hidden_size
        self.lstm = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.fc = nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        out, (h_n, c_n) = self.lstm(x)
        last = out[:, -1, :]
        return self.fc(last)


x, y = load_digits(return_X_y=True)
x = torch.tensor(x, dtype=torch.float32).view(-1, 8, 8) / 16
x = (x - x.mean()) / x.std()
y = torch.tensor(y, dtype=torch.long)
dataset = TensorDataset(x, y)
train_ds, valid_ds = random_split(dataset, [1500, 297])
train_dl = DataLoader(train_ds, batch_size=32, shuffle=True, drop_last=True)
valid_dl = DataLoader(valid_ds, batch_size=297)

net = RowReader()
loss_fn = nn.CrossEntropyLoss()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)

for epoch in range(5):
    net.train()
    for xb, yb in train_dl:
        opt.zero_grad()
        scores = net(xb)
        loss = loss_fn(scores, yb)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
    net.eval()
    with torch.no_grad():
        for xb, yb in valid_dl:
            acc = (net(xb).argmax(1) == yb).float().mean()
    print(f"epoch {epoch}, loss {loss.item():.3f}, accuracy {acc:.3f}")
