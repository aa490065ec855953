"""Small neural process on 1-d temperature-like curves."""
import numpy as np
import torch
from torch import nn

torch.manual_seed(3)
rng = np.random.default_rng(3)


def make_task(n_ctx=12, n_tgt=24):
    a, f, p = rng.uniform(0.5, 1.5), rng.uniform(0.8, 1.6), rng.uniform(0, 2 * np.pi)
    x = rng.uniform(-2, 2, n_ctx + n_tgt)
    y = a * np.sin(f * x * 2 + p) + 0.05 * rng.standard_normal(x.shape)
    return x[:n_ctx], y[:n_ctx], x[n_ctx:], y[n_ctx:]


def collate(tasks):
    return [torch.tensor(np.stack(z), dtype=torch.float32) for z in zip(*tasks)]


class CNP(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.query = nn.Linear(1, dim)
        self.key = nn.Sequential(nn.Linear(1, dim), nn.GELU(), nn.Linear(dim, dim))
        self.qnet = nn.Sequential(nn.Linear(1, dim), nn.GELU(), nn.Linear(dim, dim))
        self.decoder = nn.Sequential(nn.Linear(2 * dim, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 2))

    def forward(self, xc, yc, xt):
        r = self.encoder(torch.stack([xc, yc], -1))
        k = self.key(xc[..., None])
        q = self.qnet(xt[..., None])
        w = torch.softmax(q @ k.transpose(1, 2) / k.shape[-1] ** 0.5, -1)
        h = self.decoder(torch.cat([w @ r, self.query(xt[..., None])], -1))
        return h[..., 0], 0.05 + torch.nn.functional.softplus(h[..., 1])


def nll(model, batch):
    xc, yc, xt, yt = batch
    mu, sd = model(xc, yc, xt)
    return -torch.distributions.Normal(mu, sd).log_prob(yt).mean()


def train_epoch(model, tasks, lr=2e-3, batch_size=16):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    order = rng.permutation(len(tasks))
    losses = []
    for i in range(0, len(order), batch_size):
        opt.zero_grad()
        loss = nll(model, collate([tasks[j] for j in order[i:i + batch_size]]))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return float(np.mean(losses))


model = CNP()
val = collate([make_task() for _ in range(128)])
for epoch in range(150):
    train_tasks = [make_task() for _ in range(64)]
    tr = train_epoch(model, train_tasks)
    if epoch % 15 == 14:
        model.eval()
        with torch.no_grad():
            print(f"epoch {epoch} train nll {tr:.3f} val nll {nll(model, val).item():.3f}")
