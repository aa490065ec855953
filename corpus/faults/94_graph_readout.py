import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphConv(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        return adj @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, n_feat, n_class, agg_hidden=8, fc_hidden=24, n_agg_layer=3):
        super().__init__()
        self.graph_layers = []
        for i in range(n_agg_layer):
            self.graph_layers.append(GraphConv(n_feat if i == 0 else agg_hidden, agg_hidden))
        self.fc1 = nn.Linear(agg_hidden, fc_hidden)
        self.fc2 = nn.Linear(fc_hidden, n_class)

    def forward(self, x, adj):
        for layer in self.graph_layers:
            x = F.relu(layer(x, adj))
        x = x.mean(dim=1)
        return self.fc2(F.relu(self.fc1(x)))


def make_graphs(n, rng, size=14):
    xs, adjs, ys = [], [], []
    for _ in range(n):
        y = int(rng.integers(0, 3))
        a = np.zeros((size, size))
        if y == 0:                                   # ring
            for i in range(size):
                a[i, (i + 1) % size] = 1
        elif y == 1:                                 # star of stars
            for i in range(1, size):
                a[i, 0 if i < 5 else int(rng.integers(1, 5))] = 1
        else:                                        # two cliques joined
            h = size // 2
            a[:h, :h] = rng.random((h, h)) < 0.5
            a[h:, h:] = rng.random((size - h, size - h)) < 0.5
            a[0, h] = 1
        extra = rng.random((size, size)) < 0.04
        a = ((a + a.T + extra + extra.T) > 0).astype(float)
        np.fill_diagonal(a, 1)
        d = a.sum(1) ** -0.5
        deg = a.sum(1, keepdims=True)
        feat = np.concatenate([(deg - 4) / 2 + 0.2 * rng.standard_normal((size, 1)), rng.standard_normal((size, 15))], 1)
        feat[:, 1 + y] += 0.5
        perm = rng.permutation(size)
        adjs.append((d[:, None] * a * d[None])[perm][:, perm])
        xs.append(feat[perm])
        ys.append(y)
    return (torch.tensor(np.array(xs), dtype=torch.float32), torch.tensor(np.array(adjs), dtype=torch.float32), torch.tensor(ys))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-3)
    a = p.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, adj, y = make_graphs(1500, rng)
    xv, av, yv = make_graphs(300, rng)
    model = GCN(x.shape[-1], 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=a.lr)
    for epoch in range(a.epochs):
        model.train()
        for idx in torch.randperm(len(x)).split(a.batch_size):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[idx], adj[idx]), y[idx])
            loss.backward()
            optimizer.step()
        if epoch % 3 == 0 or epoch == a.epochs - 1:
            model.eval()
            with torch.no_grad():
                acc = (model(xv, av).argmax(1) == yv).float().mean().item()
            print(f"epoch {epoch} loss {loss.item():.3f} val acc {acc:.3f}")


if __name__ == "__main__":
    main()
