import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


class BinaryFocalLoss(nn.Module):
    def __init__(self, gamma=0.0, eps=1e-8):
        super().__init__()
        self.gamma = gamma
        self.eps = eps

    def forward(self, y_pred, y_true):
        y_pred = torch.clamp(y_pred, self.eps, 1 - self.eps)
        y_true = y_true.unsqueeze(1)
        loss = torch.sum(y_true * torch.pow(1 - y_pred, self.gamma) * torch.log(y_pred)
                         + (1 - y_true) * torch.pow(y_pred, self.gamma) * torch.log(1 - y_pred), dim=1)
        return -1.0 * loss.sum() / y_pred.size(0)


class TabularNet(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        return torch.sigmoid(self.out(self.body(x)))


def main():
    torch.manual_seed(20)
    X, y = load_breast_cancer(return_X_y=True)
    Xa, Xb, ya, yb = train_test_split(X, y, test_size=0.25, random_state=1, stratify=y)
    sc = StandardScaler().fit(Xa)
    Xa, Xb = [torch.tensor(sc.transform(v), dtype=torch.float32) for v in (Xa, Xb)]
    ya, yb = torch.tensor(ya, dtype=torch.float32), torch.tensor(yb, dtype=torch.float32)

    net = TabularNet(X.shape[1])
    loss_fn = BinaryFocalLoss(gamma=0.0)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    it = 0
    for epoch in range(30):
        net.train()
        for idx in torch.randperm(len(Xa)).split(32):
            loss = loss_fn(net(Xa[idx]), ya[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            it += 1
        net.eval()
        with torch.no_grad():
            acc = ((net(Xb).squeeze(1) > 0.5).float() == yb).float().mean().item()
        print(f"epoch {epoch} iter {it} loss {loss.item():.5f} val acc {acc:.3f}")


main()
