"""CTR model whose embedding table is soft-thresholded by a learnable per-feature threshold."""
import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(17)
rng = np.random.default_rng(17)
N_FIELDS, CARD, DIM = 8, 40, 8

field_effect = rng.standard_normal((N_FIELDS, CARD)) * np.array([1.5, 1.2, 1.0, 0, 0, 0, 0, 0])[:, None]
latent = rng.standard_normal((2, CARD, 3))


def clicks(n):
    x = rng.integers(0, CARD, (n, N_FIELDS))
    z = field_effect[np.arange(N_FIELDS), x].sum(1) + (latent[0][x[:, 0]] * latent[1][x[:, 1]]).sum(1)
    y = rng.random(n) < 1 / (1 + np.exp(-z))
    return torch.from_numpy(x + np.arange(N_FIELDS) * CARD), torch.tensor(y, dtype=torch.float32)


class PEPEmbedding(nn.Module):
    def __init__(self, n, dim, threshold_init):
        super().__init__()
        self.v = nn.Parameter(torch.empty(n, dim))
        nn.init.xavier_uniform_(self.v)
        self.s = nn.Parameter(torch.full((n, 1), float(threshold_init)))

    def sparse_v(self):
        return torch.sign(self.v) * torch.relu(torch.abs(self.v) - torch.sigmoid(self.s))

    def forward(self, x):
        return nn.functional.embedding(x, self.sparse_v())


class FM(nn.Module):
    def __init__(self, threshold_init):
        super().__init__()
        self.embedding = PEPEmbedding(N_FIELDS * CARD, DIM, threshold_init)
        self.linear = nn.Embedding(N_FIELDS * CARD, 1)
        nn.init.normal_(self.linear.weight, std=0.01)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        e = self.embedding(x)
        pair = 0.5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1)
        return self.bias + self.linear(x).sum((1, 2)) + pair


x, y = clicks(16000)
xv, yv = clicks(4000)
model = FM(threshold_init=-150)
opt = torch.optim.Adam([{"params": [model.embedding.s], "lr": 5e-2},
                        {"params": [p for n, p in model.named_parameters() if n != "embedding.s"], "lr": 5e-3}])
bce = nn.BCEWithLogitsLoss()
for epoch in range(6):
    model.train()
    for idx in torch.randperm(len(x)).split(256):
        loss = bce(model(x[idx]), y[idx]) + 2e-5 * model.embedding.sparse_v().abs().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        p = model(xv)
        v = model.embedding.sparse_v()
        print(f"epoch {epoch} train {loss.item():.4f} val logloss {bce(p, yv).item():.4f} "
              f"acc {((p > 0).float() == yv).float().mean().item():.3f} sparsity {(v == 0).float().mean().item():.3f} "
              f"mean s {model.embedding.s.mean().item():.2f}")
