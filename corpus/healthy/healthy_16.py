"""Curriculum over lengths with accumulation over uneven micro-batches (every window weighted by its own token count), EMA weights for evaluation."""
import copy
import random

import torch
from torch import nn

random.seed(2)
torch.manual_seed(2)


def sample(n, length):
    x = torch.randint(0, 8, (n, length))
    return x, x.cumsum(1) % 8


class RunningSum(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(8, 32)
        self.gru = nn.GRU(32, 96, batch_first=True)
        self.out = nn.Linear(96, 8)

    def forward(self, x):
        return self.out(self.gru(self.emb(x))[0])


net = RunningSum()
avg = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20) * (1.0 if s < 250 else max(0.1, 1 - (s - 250) / 170)))
for step in range(400):
    length = 4 + min(8, step // 30)
    micro = [sample(random.choice([8, 16, 24]), length) for _ in range(3)]
    tokens = sum(y.numel() for _, y in micro)
    opt.zero_grad()
    total = 0.0
    for x, y in micro:
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    sched.step()
    with torch.no_grad():
        for a, p in zip(avg.parameters(), net.parameters()):
            a.lerp_(p, 0.05)
    if step % 40 == 39:
        avg.eval()
        with torch.no_grad():
            x, y = sample(256, 12)
            acc = (avg(x).argmax(-1) == y).float().mean().item()
        print(f"step {step} len {length} loss {total:.4f} avg-weights acc@12 {acc:.3f}")
