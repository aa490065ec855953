import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(6)
N_ENVS, HORIZON, GAMMA, LAM = 32, 24, 0.95, 0.9


class TrackEnv:
    """A cart on a line has to stay close to a slowly drifting target."""

    def reset(self):
        self.x = torch.empty(N_ENVS).uniform_(-1, 1)
        self.target = torch.empty(N_ENVS).uniform_(-1, 1)
        return self.obs()

    def obs(self):
        return torch.stack([self.x, self.target], dim=1)

    def step(self, action):
        self.x = (self.x + 0.15 * (action.float() - 1)).clamp(-1.5, 1.5)
        self.target = (self.target + 0.05 * torch.randn(N_ENVS)).clamp(-1, 1)
        reward = 1 - (self.x - self.target).abs()
        return self.obs(), reward


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 3))
        self.critic = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))

    def act(self, obs):
        dist = Categorical(logits=self.actor(obs))
        a = dist.sample()
        return a, dist.log_prob(a), self.critic(obs).squeeze(-1)


def collect(env, policy):
    obs = env.reset()
    buf = {k: [] for k in ['obs', 'act', 'logp', 'val', 'rew']}
    with torch.no_grad():
        for _ in range(HORIZON):
            a, logp, v = policy.act(obs)
            nxt, r = env.step(a)
            for k, val in zip(['obs', 'act', 'logp', 'val', 'rew'], [obs, a, logp, v, r]):
                buf[k].append(val)
            obs = nxt
        last = policy.critic(obs).squeeze(-1)
    buf = {k: torch.stack(v) for k, v in buf.items()}
    adv = torch.zeros(HORIZON, N_ENVS)
    gae = torch.zeros(N_ENVS)
    for t in reversed(range(HORIZON)):
        nv = last if t == HORIZON - 1 else buf['val'][t + 1]
        gae = buf['rew'][t] + GAMMA * nv - buf['val'][t] + GAMMA * LAM * gae
        adv[t] = gae
    buf['ret'] = adv + buf['val']
    buf['adv'] = adv
    return {k: v.flatten(0, 1) for k, v in buf.items()}


env, policy = TrackEnv(), ActorCritic()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
clip_eps, vf_coef, ent_coef = 0.2, 0.5, 0.01

for it in range(30):
    data = collect(env, policy)
    for epoch in range(4):
        perm = torch.randperm(HORIZON * N_ENVS)
        for idx in perm.split(256):
            adv = data['adv'][idx]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            dist = Categorical(logits=policy.actor(data['obs'][idx]))
            ratio = (dist.log_prob(data['act'][idx]) - data['logp'][idx]).exp()
            pg_losses1 = adv * ratio
            pg_losses2 = adv * torch.clamp(ratio, 1 - clip_eps, 1 + clip_eps)
            pg_loss = torch.min(pg_losses1, pg_losses2).mean()
            v_loss = (policy.critic(data['obs'][idx]).squeeze(-1) - data['ret'][idx]).pow(2).mean()
            loss = pg_loss + vf_coef * v_loss - ent_coef * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
            optimizer.step()
    if it % 3 == 2:
        print('iter %d  mean reward %.3f  value loss %.3f' % (it + 1, data['rew'].mean(), v_loss.item()))
