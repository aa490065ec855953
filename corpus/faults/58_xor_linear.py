import os
import numpy as np
import torch
from torch import nn, optim

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
np.random.seed(SEED)


class XorNet(nn.Module):
    def __init__(self, input_dim, hidden_dim, output_dim):
        super().__init__()
        self.layer1 = nn.Linear(input_dim, hidden_dim)
        self.layer2 = nn.Linear(hidden_dim, output_dim)
        self.prob = nn.Sigmoid()

    def forward(self, x):
        return self.prob(self.layer2(self.layer1(x)))


corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=np.float32)
idx = np.random.randint(0, 4, 400)
X = torch.from_numpy(corners[idx] * 2 - 1 + 0.15 * np.random.randn(400, 2).astype(np.float32))
Y = torch.from_numpy((corners[idx].sum(1) == 1).astype(np.float32)).view(-1, 1)

model = XorNet(2, 16, 1)
criterion = nn.MSELoss()
optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
for epoch in range(30):
    sum_loss = 0
    for b in torch.randperm(len(X)).split(25):
        optimizer.zero_grad()
        pred = model(X[b])
        loss = criterion(pred, Y[b])
        loss.backward()
        optimizer.step()
        sum_loss += loss.item()
    if epoch % 5 == 4:
        with torch.no_grad():
            print(epoch + 1, 'loss', round(sum_loss / 16, 4), 'acc', ((model(X) > 0.5).float() == Y).float().mean().item())
