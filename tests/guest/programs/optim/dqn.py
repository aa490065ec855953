"""DQN: a replay buffer, a target network that is loaded from time to time, evaluation between the steps."""
import copy
import random
from collections import deque

import torch
from torch import nn

random.seed(44), torch.manual_seed(44)
q = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
target = copy.deepcopy(q).requires_grad_(False)
opt = torch.optim.RMSprop(q.parameters(), lr=1e-3)
buf = deque(maxlen=64)
losses = []
s = torch.randn(3)
for t in range(60):
    with torch.no_grad():
        a = q(s).argmax().item() if random.random() > 0.2 else random.randrange(2)
    s2 = (s * 0.9 + torch.randn(3) * 0.1 + (a - 0.5) * 0.1).clamp(-2, 2)
    buf.append((s, a, -s2.abs().sum(), s2))
    s = s2
    if len(buf) >= 16:
        S, A, R, S2 = zip(*random.sample(list(buf), 8))
        qa = q(torch.stack(S)).gather(1, torch.tensor(A)[:, None]).squeeze(1)
        with torch.no_grad():
            y = torch.stack(R) + 0.95 * target(torch.stack(S2)).max(1).values
        loss = nn.functional.smooth_l1_loss(qa, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(q.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
    if t % 20 == 19:
        target.load_state_dict(q.state_dict())
print(len(losses), losses[-1])
