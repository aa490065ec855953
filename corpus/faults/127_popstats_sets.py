import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(17)
rng = np.random.RandomState(17)


class PopStats:
    """Sets of samples from a random normal; the statistic to predict is the entropy."""

    def __init__(self, n_sets, set_size=40):
        sigma = rng.uniform(0.2, 3.0, n_sets)
        mean = rng.uniform(-1, 1, n_sets)
        self.x = (mean[:, None] + sigma[:, None] * rng.randn(n_sets, set_size)).astype(np.float32)[:, :, None] / 2.0
        self.y = (0.5 * np.log(2 * np.pi * np.e * sigma ** 2)).astype(np.float32)

    def batches(self, bs):
        perm = rng.permutation(len(self.y))
        for i in range(0, len(perm) - bs + 1, bs):
            idx = perm[i:i + bs]
            yield torch.from_numpy(self.x[idx]), torch.from_numpy(self.y[idx])


class DeepSet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, hidden))
        self.dec = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.dec(self.enc(x).mean(dim=1))


train_set, test_set = PopStats(2048), PopStats(256)
model = DeepSet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(20):
    losses = []
    for x, y in train_set.batches(128):
        optimizer.zero_grad()
        y_pred = model(x)
        loss = torch.mean((y_pred - y) ** 2)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if epoch % 4 == 3:
        print('epoch %2d  loss %.4f' % (epoch, np.mean(losses)))

with torch.no_grad():
    pred = model(torch.from_numpy(test_set.x)).numpy().ravel()
print('test rmse %.4f   std of truth %.4f   std of prediction %.4f' % (
    np.sqrt(np.mean((pred - test_set.y) ** 2)), test_set.y.std(), pred.std()))
