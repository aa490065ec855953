"""An estimator with fit, partial_fit, predict, get_params and a clone that trains again, sklearn's way."""
import inspect

import torch
from torch import nn


class TorchRegressor:
    def __init__(self, hidden=8, lr=0.05, epochs=8, seed=0):
        self.hidden, self.lr, self.epochs, self.seed = hidden, lr, epochs, seed

    def get_params(self):
        return {k: getattr(self, k) for k in inspect.signature(type(self).__init__).parameters if k != "self"}

    def fit(self, X, y):
        torch.manual_seed(self.seed)
        self.net_ = nn.Sequential(nn.Linear(X.shape[1], self.hidden), nn.ReLU(), nn.Linear(self.hidden, 1))
        self.opt_ = torch.optim.Adam(self.net_.parameters(), lr=self.lr)
        for _ in range(self.epochs):
            self.partial_fit(X, y)
        return self

    def partial_fit(self, X, y):
        self.opt_.zero_grad()
        self.loss_ = nn.functional.mse_loss(self.net_(X).squeeze(1), y)
        self.loss_.backward()
        self.opt_.step()

    @torch.no_grad()
    def predict(self, X):
        return self.net_(X).squeeze(1)


g = torch.Generator().manual_seed(0)
X = torch.randn(40, 3, generator=g)
y = X.sum(1)
scores = []
for hidden in (2, 8, 16):
    m = TorchRegressor(hidden=hidden).fit(X[:30], y[:30])
    scores.append((m.predict(X[30:]) - y[30:]).pow(2).mean().item())
final = TorchRegressor(**m.get_params()).fit(X, y)
print(scores, final.loss_.item())
