import os
import numpy as np
import torch
import torch.nn as nn
from torch.optim import Adam

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
np.random.seed(SEED)


def mlp(sizes, activation, output_activation=nn.Identity):
    layers = []
    for j in range(len(sizes) - 1):
        act = activation if j < len(sizes) - 2 else output_activation
        layers += [nn.Linear(sizes[j], sizes[j + 1]), act()]
    return nn.Sequential(*layers)


class MLPQFunction(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        self.q = mlp([obs_dim + act_dim] + list(hidden_sizes) + [1], activation)

    def forward(self, obs, act):
        return self.q(torch.cat([obs, act], dim=-1))


class ReplayBuffer:
    def __init__(self, size):
        self.obs = np.random.randn(size, 4).astype(np.float32)
        self.act = np.random.uniform(-1, 1, (size, 2)).astype(np.float32)
        self.obs2 = (0.9 * self.obs + 0.3 * np.tile(self.act, 2)).astype(np.float32)
        self.rew = (-(self.obs[:, :2] + self.act) ** 2).sum(1).astype(np.float32)
        self.done = (np.random.rand(size) < 0.3).astype(np.float32)

    def sample_batch(self, batch_size):
        i = np.random.randint(0, len(self.obs), batch_size)
        return {k: torch.as_tensor(getattr(self, k)[i]) for k in ("obs", "act", "obs2", "rew", "done")}


buf = ReplayBuffer(4000)
q, q_targ = (MLPQFunction(4, 2, (64, 64), nn.ReLU) for _ in range(2))
q_targ.load_state_dict(q.state_dict())
for p in q_targ.parameters():
    p.requires_grad = False
pi = lambda o: torch.clamp(-o[:, :2], -1, 1)
optimizer = Adam(q.parameters(), lr=1e-3)
polyak, gamma = 0.99, 0.5


def compute_loss_q(data):
    qv = q(data["obs"], data["act"])
    with torch.no_grad():
        backup = data["rew"] + gamma * (1 - data["done"]) * q_targ(data["obs2"], pi(data["obs2"]))
    return ((qv - backup) ** 2).mean(), qv.detach()


for t in range(500):
    optimizer.zero_grad()
    loss_q, vals = compute_loss_q(buf.sample_batch(64))
    loss_q.backward()
    optimizer.step()
    with torch.no_grad():
        for p, p_targ in zip(q.parameters(), q_targ.parameters()):
            p_targ.data.mul_(polyak).add_((1 - polyak) * p.data)
    if t % 50 == 0 or t == 499:
        print("t %d LossQ %.3f QVals %.3f +- %.3f" % (t, loss_q.item(), vals.mean().item(), vals.std().item()))
