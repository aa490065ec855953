import os
import torch
import torch.nn as nn
from torch.distributions import Categorical

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class GridWorld:
    def __init__(self, size=5):
        self.size = size

    def reset(self):
        self.p = torch.randint(0, self.size, (2,)).tolist()
        self.goal = torch.randint(0, self.size, (2,)).tolist()
        return self.obs()

    def obs(self):
        return torch.tensor([(g - p) / self.size for g, p in zip(self.goal, self.p)] + [p / self.size for p in self.p])

    def step(self, a):
        d = [(0, 1), (0, -1), (1, 0), (-1, 0)][a]
        self.p = [min(self.size - 1, max(0, v + w)) for v, w in zip(self.p, d)]
        done = self.p == self.goal
        return self.obs(), 1.0 if done else -0.1, done


policy = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 4))
value = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 1))
opt = torch.optim.Adam([{"params": policy.parameters(), "lr": 5e-3}, {"params": value.parameters(), "lr": 1e-2}])
env, history = GridWorld(), []
for episode in range(240):
    batch_lp, batch_ret, batch_obs = [], [], []
    for _ in range(4):
        obs, rewards = env.reset(), []
        for t in range(12):
            dist = Categorical(logits=policy(obs))
            a = dist.sample()
            batch_lp.append(dist.log_prob(a) + 0.0)
            batch_obs.append(obs)
            obs, r, done = env.step(a.item())
            rewards.append(r)
            if done:
                break
        ret, out = 0.0, []
        for r in reversed(rewards):
            ret = r + 0.97 * ret
            out.insert(0, ret)
        batch_ret += out
        history.append(sum(rewards))
    R = torch.tensor(batch_ret)
    v = value(torch.stack(batch_obs)).squeeze(-1)
    adv = R - v.detach()
    loss = -(torch.stack(batch_lp) * adv).mean() + 0.5 * (v - R).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(list(policy.parameters()) + list(value.parameters()), 5.0)
    opt.step()
    if episode % 40 == 39:
        print(f"update {episode + 1} loss {loss.item():.3f} mean return {sum(history[-160:]) / 160:.3f}")
