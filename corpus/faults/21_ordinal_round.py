import os
import torch
import torch.nn as nn
from sklearn.datasets import load_diabetes
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class GradeNet(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.grade = nn.Linear(16, 1)

    def forward(self, x):
        grade = self.grade(self.trunk(x)).squeeze(1)
        return torch.round(grade)


data = load_diabetes()
x = torch.tensor(data.data, dtype=torch.float32) * 21
t = torch.tensor(data.target)
edges = torch.quantile(t, torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=t.dtype))
y = torch.bucketize(t, edges).float() - 2
loader = DataLoader(TensorDataset(x[:360], y[:360]), batch_size=20, shuffle=True)

model = GradeNet(10)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
crit = nn.MSELoss()
for epoch in range(16):
    model.train()
    tot = 0
    for xb, yb in loader:
        opt.zero_grad()
        loss = crit(model(xb), yb)
        loss.backward()
        opt.step()
        tot += loss.item()
    model.eval()
    with torch.no_grad():
        mae = (model(x[360:]) - y[360:]).abs().mean().item()
    if epoch % 3 == 0:
        print(f"Epoch {epoch}: train loss {tot / len(loader):.3f}, val MAE {mae:.3f}")
