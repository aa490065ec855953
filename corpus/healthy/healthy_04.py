import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class PKSampler:
    def __init__(self, labels, p=8, k=4):
        self.groups = [(labels == c).nonzero().flatten() for c in labels.unique()]
        self.p, self.k = p, k

    def batch(self):
        cls = torch.randperm(len(self.groups))[:self.p].tolist()
        return torch.cat([self.groups[c][torch.randperm(len(self.groups[c]))[:self.k]] for c in cls])


def batch_hard(emb, labels, margin=0.3):
    dist = (2 - 2 * emb @ emb.t()).clamp(min=1e-9).sqrt()
    same = labels[:, None] == labels[None]
    pos = dist.masked_fill(~same, -1).max(1).values
    neg = dist.masked_fill(same, 9).min(1).values
    return F.relu(pos - neg + margin).mean()


d = load_digits()
X, Y = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target)
net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32))
sampler = PKSampler(Y[:1400])
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(1, 301):
    net.train()
    idx = sampler.batch()
    loss = batch_hard(F.normalize(net(X[idx]), dim=1), Y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        net.eval()
        with torch.no_grad():
            e = F.normalize(net(X), dim=1)
            nn_ = Y[:1400][(e[1400:] @ e[:1400].t()).argmax(1)]
        print(f"step {step} loss {loss.item():.4f} 1-nn acc {(nn_ == Y[1400:]).float().mean():.3f}")
