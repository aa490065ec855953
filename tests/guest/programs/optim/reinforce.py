"""REINFORCE with sampling from torch.distributions, python's random in the environment, a loss from a list."""
import random

import torch
from torch import nn
from torch.distributions import Categorical

random.seed(43), torch.manual_seed(43)
policy = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
returns = []
for ep in range(15):
    s = [random.random(), random.random()]
    logps, rewards = [], []
    for t in range(10):
        d = Categorical(logits=policy(torch.tensor(s)))
        a = d.sample()
        logps.append(d.log_prob(a))
        rewards.append(1.0 if (s[0] > s[1]) == bool(a.item()) else -1.0)
        s = [random.random(), random.random()]
    R, G = 0, []
    for r in rewards[::-1]:
        R = r + 0.9 * R
        G.insert(0, R)
    G = torch.tensor(G)
    G = (G - G.mean()) / (G.std() + 1e-8)
    loss = torch.stack([-lp * g for lp, g in zip(logps, G)]).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    returns.append(sum(rewards))
print(returns)
