"""Three regression tasks on one trunk, combined by learned task weights (house tables)."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_diabetes


class WeightMethod:
    """softmax task weights, adapted by the change of the log losses"""

    def __init__(self, n_tasks, gamma=1e-3, w_lr=0.02, max_norm=1.0):
        self.w = torch.zeros(n_tasks, requires_grad=True)
        self.w_opt = torch.optim.Adam([self.w], lr=w_lr, weight_decay=gamma)
        self.max_norm = max_norm
        self.prev_loss = None

    def get_weighted_loss(self, losses):
        self.prev_loss = losses.detach()
        z = F.softmax(self.w, -1)
        D = losses + 1e-8
        c = (z / D).sum().detach()
        return (D.log() * z / c).sum()

    def update(self, curr_loss):
        delta = (self.prev_loss + 1e-8).log() - (curr_loss + 1e-8).log()
        with torch.enable_grad():
            d = torch.autograd.grad(F.softmax(self.w, -1), self.w, grad_outputs=delta.detach())[0]
        self.w_opt.zero_grad()
        self.w.grad = d
        self.w_opt.step()

    def backward(self, losses, shared_parameters):
        loss = self.get_weighted_loss(losses)
        if self.max_norm > 0:
            torch.nn.utils.clip_grad_norm_(shared_parameters, self.max_norm)
        loss.backward()
        return loss


class MultiTaskNet(nn.Module):
    def __init__(self, d, tasks):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(64, 1) for _ in range(tasks)])

    def forward(self, x):
        h = self.trunk(x)
        return torch.cat([head(h) for head in self.heads], 1)


def get_data():
    rng = np.random.RandomState(0)
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(0)
    y0 = (y - y.mean()) / y.std()
    y1 = np.tanh(X[:, 2] + X[:, 8]) - 0.5 * X[:, 3]
    y2 = np.abs(X[:, 0]) + 0.3 * X[:, 6]
    # a few records were measured far outside of the usual range
    odd = rng.choice(len(X), 9, replace=False)
    X[odd] *= 22
    return (torch.tensor(X, dtype=torch.float32), torch.tensor(np.stack([y0, y1, y2], 1), dtype=torch.float32))


def main():
    torch.manual_seed(0)
    X, Y = get_data()
    model = MultiTaskNet(X.shape[1], 3)
    weight_method = WeightMethod(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9)
    for epoch in range(24):
        order = torch.randperm(len(X))
        total = []
        for k in range(0, len(X) - 31, 32):
            idx = order[k:k + 32]
            x, y = X[idx], Y[idx]
            losses = F.mse_loss(model(x), y, reduction="none").mean(0)
            optimizer.zero_grad()
            weight_method.backward(losses, list(model.parameters()))
            optimizer.step()
            with torch.no_grad():
                new = F.mse_loss(model(x), y, reduction="none").mean(0)
                weight_method.update(new)
            total.append(losses.detach())
        avg = torch.stack(total).median(0).values
        print("epoch %2d | task losses %s" % (epoch, " ".join("%.4f" % v for v in avg)))


if __name__ == "__main__":
    main()
