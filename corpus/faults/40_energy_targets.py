import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.xavier_uniform_(m.weight)
        nn.init.zeros_(m.bias)


class EnergyNet(nn.Module):
    def __init__(self, n_in, n_hidden=5):
        super().__init__()
        self.hidden1 = nn.Linear(n_in, n_hidden)
        self.hidden2 = nn.Linear(n_hidden, n_hidden)
        self.out = nn.Linear(n_hidden, 1)
        self.apply(init_weights)

    def forward(self, x):
        x = torch.tanh(self.hidden1(x))
        x = torch.tanh(self.hidden2(x))
        return self.out(x)


g = torch.Generator().manual_seed(SEED)
X = torch.rand(1200, 6, generator=g) * 2 - 1
y = -2700 + 8 * (X[:, :1] * X[:, 1:2]) + 6 * X[:, 2:3] - 5 * X[:, 3:4] ** 2 + 0.3 * torch.randn(1200, 1, generator=g)
n = 1000
y_train, y_test = y[:n], y[n:]
loader = DataLoader(TensorDataset(X[:n], y_train), batch_size=32, shuffle=True)
model = EnergyNet(6)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loss_fn = nn.MSELoss()
for epoch in range(15):
    running = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(xb), yb)
        loss.backward()
        optimizer.step()
        running += loss.item()
    with torch.no_grad():
        pred = model(X[n:])
        r2 = 1 - ((pred - y_test) ** 2).sum() / ((y_test - y_test.mean()) ** 2).sum()
    print(f"epoch {epoch} mse {running / len(loader):.5g} pred mean {pred.mean():.3f} std {pred.std():.3f} r2 {r2:.3f}")
