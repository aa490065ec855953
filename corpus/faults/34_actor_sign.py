import copy
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class Actor(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state_dim, 64), nn.ReLU(), nn.Linear(64, action_dim), nn.Tanh())

    def forward(self, s):
        return self.net(s)


class Critic(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state_dim + action_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, s, a):
        return self.net(torch.cat([s, a], dim=1))


def reward(s, a):
    return 1.0 - (a - torch.tanh(s[:, :2])).pow(2).sum(1, keepdim=True)


class DDPGAgent:
    def __init__(self, state_dim=3, action_dim=2):
        self.actor, self.critic = Actor(state_dim, action_dim), Critic(state_dim, action_dim)
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=3e-3)

    def act(self, s, noise):
        with torch.no_grad():
            return (self.actor(s) + noise * torch.randn(s.size(0), 2)).clamp(-1, 1)

    def update(self, s, a, r, s2, update_actor):
        with torch.no_grad():
            y = r + 0.3 * self.critic_target(s2, self.actor(s2))
        critic_loss = F.mse_loss(self.critic(s, a), y)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        actor_loss = torch.zeros(())
        if update_actor:
            q_values = self.critic(s, self.actor(s))
            actor_loss = q_values.mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
        for p, tp in zip(self.critic.parameters(), self.critic_target.parameters()):
            tp.data.lerp_(p.data, 0.02)
        return critic_loss.item(), actor_loss.item()


agent = DDPGAgent()
S, A, R, S2 = [], [], [], []
state = torch.randn(32, 3)
returns = []
for step in range(500):
    action = agent.act(state, 0.4)
    r = reward(state, action)
    nxt = 0.5 * state + torch.randn(32, 3)
    S.append(state); A.append(action); R.append(r); S2.append(nxt)
    returns.append(r.mean().item())
    state = nxt
    k = torch.randint(0, len(S), (4,)).tolist()
    batch = [torch.cat([b[j] for j in k]) for b in (S, A, R, S2)]
    cl, al = agent.update(*batch, update_actor=step > 50)
    if step % 50 == 49:
        print(f"step {step + 1} critic {cl:.3f} actor {al:.3f} mean reward {sum(returns[-50:]) / 50:.3f}")
