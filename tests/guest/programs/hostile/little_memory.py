"""The address space is limited to a little more than is used, and an allocation fails."""

import resource

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []


def train(steps):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :2] * 2).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


train(5)
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), hard))
failed = []
for size in (1 << 31, 1 << 33):
    try:
        torch.empty(size, dtype=torch.uint8)
    except RuntimeError as error:
        failed.append("can't allocate memory" in str(error) or "not enough memory" in str(error))
    train(10)
try:
    bytearray(1 << 31)
except MemoryError:
    failed.append("python, too")
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
del used
print(failed, losses[-1])
