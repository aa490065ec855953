"""REINFORCE with a learned baseline on a small key-and-door corridor, two optimizers."""
import random
import torch
import torch.nn as nn
from torch.distributions import Categorical

random.seed(1)
torch.manual_seed(1)

LENGTH, LIMIT = 6, 24


class Corridor:
    def reset(self):
        self.pos, self.key, self.t = random.randrange(1, LENGTH - 1), 0, 0
        return self.obs()

    def obs(self):
        v = torch.zeros(LENGTH + 1)
        v[self.pos] = 1.0
        v[-1] = float(self.key)
        return v

    def step(self, action):
        self.t += 1
        self.pos = min(max(self.pos + (1 if action == 1 else -1), 0), LENGTH - 1)
        if self.pos == 0:
            self.key = 1
        won = self.pos == LENGTH - 1 and self.key == 1
        return self.obs(), (1.0 if won else -0.02), won or self.t >= LIMIT


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(LENGTH + 1, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, s):
        return Categorical(logits=self.body(s))


actor = Actor()
baseline = nn.Sequential(nn.Linear(LENGTH + 1, 32), nn.Tanh(), nn.Linear(32, 1))
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-2)
value_opt = torch.optim.Adam(baseline.parameters(), lr=1e-2)
env = Corridor()
gamma = 0.97

for update in range(120):
    states, actions, returns, scores = [], [], [], []
    for _ in range(8):
        s, done, rewards = env.reset(), False, []
        while not done:
            with torch.no_grad():
                a = actor(s).sample()
            states.append(s)
            actions.append(a)
            s, r, done = env.step(a.item())
            rewards.append(r)
        g, out = 0.0, []
        for r in reversed(rewards):
            g = r + gamma * g
            out.append(g)
        returns.extend(reversed(out))
        scores.append(sum(rewards))
    S, A, R = torch.stack(states), torch.stack(actions), torch.tensor(returns)

    value = baseline(S).squeeze(1)
    value_loss = (value - R).pow(2).mean()
    value_opt.zero_grad()
    value_loss.backward()
    value_opt.step()

    advantage = R - value.detach()
    advantage = advantage / (advantage.std() + 1e-6)
    dist = actor(S)
    policy_loss = -(dist.log_prob(A) * advantage).mean() - 0.01 * dist.entropy().mean()
    actor_opt.zero_grad()
    policy_loss.backward()
    nn.utils.clip_grad_norm_(actor.parameters(), 2.0)
    actor_opt.step()
    if update % 20 == 0 or update == 119:
        print(f"update {update} mean score {sum(scores) / len(scores):.3f} value loss {value_loss.item():.4f}")
