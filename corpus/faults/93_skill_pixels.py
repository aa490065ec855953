"""Unsupervised pre-training on pixels with a contrastive state/skill objective, then a probe on the features."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

torch.manual_seed(5)
rng = np.random.default_rng(5)

digits = load_digits()
frames = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
labels = digits.target
perm = rng.permutation(len(frames))
train_idx, test_idx = perm[:1300], perm[1300:]


class PixelEncoder(nn.Module):
    def __init__(self, feature_dim=64):
        super().__init__()
        self.convnet = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU())
        self.trunk = nn.Linear(32 * 4 * 4, feature_dim)

    def forward(self, obs):
        return self.trunk(self.convnet(obs).flatten(1))


class ContrastiveHead(nn.Module):
    def __init__(self, feature_dim, skill_dim=32):
        super().__init__()
        self.state_net = nn.Sequential(nn.Linear(feature_dim, 64), nn.ReLU(), nn.Linear(64, skill_dim))
        self.next_net = nn.Sequential(nn.Linear(feature_dim, 64), nn.ReLU(), nn.Linear(64, skill_dim))

    def forward(self, s, s_next):
        return F.normalize(self.state_net(s), dim=1), F.normalize(self.next_net(s_next), dim=1)


def jitter(x):
    dx, dy = rng.integers(-1, 2, 2)
    x = torch.roll(x, (int(dx), int(dy)), (2, 3))
    return (x + 0.15 * torch.randn_like(x)) * torch.empty(x.size(0), 1, 1, 1).uniform_(0.7, 1.3)


class Agent:
    def __init__(self, lr=1e-3, temperature=0.2):
        self.encoder = PixelEncoder()
        self.cic = ContrastiveHead(64)
        self.encoder_opt = torch.optim.Adam(self.encoder.parameters(), lr=lr)
        self.cic_opt = torch.optim.Adam(self.cic.parameters(), lr=lr)
        self.temperature = temperature

    def update(self, obs, next_obs):
        with torch.no_grad():
            obs = self.encoder(obs)
            next_obs = self.encoder(next_obs)
        query, key = self.cic(obs, next_obs)
        sim = query @ key.T / self.temperature
        loss = F.cross_entropy(sim, torch.arange(len(sim)))
        self.encoder_opt.zero_grad()
        self.cic_opt.zero_grad()
        loss.backward()
        self.encoder_opt.step()
        self.cic_opt.step()
        return loss.item()


agent = Agent()
for step in range(400):
    batch = frames[rng.choice(train_idx, 128, replace=False)]
    loss = agent.update(jitter(batch), jitter(batch))
    if step % 50 == 0 or step == 399:
        print(f"step {step:4d} contrastive loss {loss:.3f}")

agent.encoder.eval()
with torch.no_grad():
    feats = agent.encoder(frames)
    feats = ((feats - feats[train_idx].mean(0)) / feats[train_idx].std(0)).numpy()
few = train_idx[:60]
probe = LogisticRegression(max_iter=500).fit(feats[few], labels[few])
print("few-shot probe accuracy", round(probe.score(feats[test_idx], labels[test_idx]), 3))
