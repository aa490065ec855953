import os
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

SEED = int(os.environ.get("SEED", 0))
np.random.seed(SEED)
torch.manual_seed(SEED)


class ActorCriticPolicy(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh(), nn.Linear(32, n_actions))
        self.vf = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh(), nn.Linear(32, 1))

    def dist(self, obs):
        return Categorical(logits=self.pi(obs), validate_args=False)

    def evaluate_actions(self, obs, actions):
        d = self.dist(obs)
        return self.vf(obs).flatten(), d.log_prob(actions), d.entropy()


class PPO:
    def __init__(self, policy, n_steps=129, batch_size=32, n_epochs=4, clip_range=0.2, lr=2e-3, normalize_advantage=True):
        self.policy, self.n_steps, self.batch_size, self.n_epochs = policy, n_steps, batch_size, n_epochs
        self.clip_range, self.normalize_advantage = clip_range, normalize_advantage
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=lr, eps=1e-5)
        self.w = torch.randn(4, 3, generator=torch.Generator().manual_seed(SEED))

    def collect_rollouts(self):
        obs = torch.randn(self.n_steps, 4)
        with torch.no_grad():
            d = self.policy.dist(torch.nan_to_num(obs))
            probs = torch.nan_to_num(d.probs, nan=1 / 3)
            actions = torch.multinomial(probs, 1).squeeze(1)
            log_prob = torch.log(probs.gather(1, actions[:, None]).squeeze(1))
            rewards = (obs @ self.w).gather(1, actions[:, None]).squeeze(1)
            adv = rewards - self.policy.vf(obs).flatten()
        return obs, actions, log_prob, adv, rewards

    def train(self, rollout):
        obs, actions, old_log_prob, advs, returns = rollout
        for _ in range(self.n_epochs):
            for idx in np.array_split(np.random.permutation(self.n_steps), range(self.batch_size, self.n_steps, self.batch_size)):
                advantages = advs[idx]
                self.step(obs[idx], actions[idx], old_log_prob[idx], advantages, returns[idx])

    def step(self, obs, actions, old_log_prob, advantages, returns):
            values, log_prob, entropy = self.policy.evaluate_actions(obs, actions)
            if self.normalize_advantage:
                advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            ratio = torch.exp(log_prob - old_log_prob)
            clipped = torch.clamp(ratio, 1 - self.clip_range, 1 + self.clip_range)
            policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
            loss = policy_loss + 0.5 * nn.functional.mse_loss(values, returns) - 0.01 * entropy.mean()
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.optimizer.step()
            self.loss = loss.item()

    def learn(self, iterations):
        for it in range(iterations):
            rollout = self.collect_rollouts()
            self.train(rollout)
            if it % 4 == 0 or it == iterations - 1:
                print(f"iter {it} ep_rew_mean {rollout[-1].mean():.3f} loss {self.loss:.4f}")


PPO(ActorCriticPolicy(4, 3)).learn(30)
