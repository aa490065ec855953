"""Next-item interest model: attention over a padded click history."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

N_ITEMS, N_TOPICS, MAX_LEN = 200, 8, 12
rng = np.random.default_rng(21)
topic_of = rng.integers(0, N_TOPICS, N_ITEMS + 1)


class ClickLog(Dataset):
    def __init__(self, n, cold):
        self.rows = []
        for u in range(n):
            taste = rng.integers(0, N_TOPICS, 2)
            pool = np.flatnonzero(np.isin(topic_of[1:], taste)) + 1
            k = 0 if u in cold else int(rng.integers(2, MAX_LEN + 1))
            hist = np.zeros(MAX_LEN, dtype=np.int64)
            hist[:k] = rng.choice(pool, k)
            cand = int(rng.choice(pool)) if rng.random() < 0.5 else int(rng.integers(1, N_ITEMS + 1))
            self.rows.append((hist, cand, float(topic_of[cand] in taste)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        h, c, y = self.rows[i]
        return torch.from_numpy(h), torch.tensor(c), torch.tensor(y)


class InterestNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.item = nn.Embedding(N_ITEMS + 1, dim)
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(3 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, hist, cand):
        pad = hist == 0
        h, c = self.item(hist), self.item(cand)
        z, _ = self.attn(c.unsqueeze(1), h, h, key_padding_mask=pad)
        z = self.norm(z.squeeze(1))
        return self.mlp(torch.cat([z, c, z * c], 1)).squeeze(1)


def evaluate(model, loader):
    model.eval()
    good = n = 0
    with torch.no_grad():
        for h, c, y in loader:
            good += ((model(h, c) > 0).float() == y).sum().item()
            n += len(y)
    return good / n


if __name__ == "__main__":
    torch.manual_seed(21)
    train = ClickLog(12000, cold={2741})
    val = ClickLog(1500, cold=set())
    tl = DataLoader(train, batch_size=64, shuffle=True)
    vl = DataLoader(val, batch_size=256)
    net = InterestNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=1e-5)
    bce = nn.BCEWithLogitsLoss()
    for epoch in range(4):
        net.train()
        total = 0.0
        for h, c, y in tl:
            opt.zero_grad()
            loss = bce(net(h, c), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(tl):.4f} val acc {evaluate(net, vl):.3f}")
