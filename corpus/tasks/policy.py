"""Policy gradient with a learnt baseline on a corridor of seven cells: walk right to the exit."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--gamma", type=float, default=0.95)
args = parser.parse_args()
torch.manual_seed(args.seed)


class Corridor:
    """A number of corridors side by side; each step costs a little, the exit pays one."""

    def __init__(self, n, length=7):
        self.n, self.length = n, length

    def reset(self):
        self.place = torch.randint(0, self.length - 1, (self.n,))
        self.done = torch.zeros(self.n, dtype=torch.bool)
        return self.observe()

    def observe(self):
        return F.one_hot(self.place, self.length).float()

    def step(self, action):
        moved = (self.place + 2 * action - 1).clamp(0, self.length - 1)
        self.place = torch.where(self.done, self.place, moved)
        arrived = (self.place == self.length - 1) & ~self.done
        reward = arrived.float() - 0.05 * (~self.done).float()
        self.done = self.done | arrived
        return self.observe(), reward, self.done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(7, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)

    def forward(self, x):
        x = torch.tanh(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x).squeeze(-1)


env = Corridor(16)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)

for episode in range(150):
    state = env.reset()
    log_probs, values, rewards = [], [], []
    for _ in range(8):
        probs, value = policy(state)
        dist = Categorical(probs)
        action = dist.sample()
        state, reward, done = env.step(action)
        log_probs.append(dist.log_prob(action))
        values.append(value)
        rewards.append(reward)
    returns, running = [], torch.zeros(env.n)
    for reward in reversed(rewards):
        running = reward + args.gamma * running
        returns.insert(0, running)
    returns = torch.stack(returns)
    log_probs, values = torch.stack(log_probs), torch.stack(values)
    advantage = returns - values.detach()
    policy_loss = -(log_probs * advantage).mean()
    value_loss = F.mse_loss(values, returns)
    loss = policy_loss + 0.5 * value_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 30 == 0:
        print(f"episode {episode}: reward {torch.stack(rewards).sum(0).mean():.2f}")
