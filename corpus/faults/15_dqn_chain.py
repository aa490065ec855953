import os
import random
from collections import deque
import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("SEED", 0))
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


class Corridor:
    def __init__(self, n=7):
        self.n = n

    def reset(self):
        self.pos, self.t = random.randrange(self.n - 1), 0
        return self.obs()

    def obs(self):
        o = np.zeros(self.n, dtype=np.float32)
        o[self.pos] = 1
        return o

    def step(self, a):
        self.pos = max(0, self.pos - 1) if a == 0 else self.pos + 1
        self.t += 1
        done = self.pos == self.n - 1
        return self.obs(), float(done), done, self.t >= 30


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def push(self, *tr):
        self.buffer.append(tr)

    def sample(self, batch_size):
        s, a, r, s2, d = zip(*random.sample(self.buffer, batch_size))
        return (torch.tensor(np.stack(s)), torch.tensor(a), torch.tensor(r), torch.tensor(np.stack(s2)),
                torch.tensor(d, dtype=torch.float32))


def update_target(current_model, target_model):
    target_model.load_state_dict(current_model.state_dict())


def compute_td_error(batch_size):
    state, action, reward, next_state, done = replay_buffer.sample(batch_size)
    q_value = model(state).gather(1, action.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        next_q = target_model(next_state).max(1)[0]
    expected = reward + gamma * next_q * (1 - done)
    loss = (q_value - expected).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


env = Corridor()
gamma, target_every = 0.9, 50
net = lambda: nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 2))
model, target_model = net(), net()
update_target(model, target_model)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
replay_buffer = ReplayBuffer(4000)
losses = []
state = env.reset()
for frame_idx in range(1, 1001):
    eps = max(0.2, 1 - frame_idx / 500)
    if random.random() < eps:
        action = random.randrange(2)
    else:
        with torch.no_grad():
            action = int(model(torch.tensor(state)[None]).argmax())
    next_state, reward, done, truncated = env.step(action)
    replay_buffer.push(state, action, reward, next_state, done)
    state = env.reset() if done or truncated else next_state
    if len(replay_buffer.buffer) > 64:
        losses.append(compute_td_error(64))
        if frame_idx % 200 == 0:
            print("frame", frame_idx, "loss", np.mean(losses))
        if frame_idx % target_every == 0:
            losses.clear()

with torch.no_grad():
    v = model(torch.eye(7)[:6]).max(1)[0]
print("V", [round(t, 2) for t in v.tolist()], "true", [round(gamma ** (5 - i), 2) for i in range(6)])
