"""A step of the optimizer raises now and then, after it has begun; the program catches that and goes on."""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
x = torch.randn(32, 8)


class Fragile(torch.optim.SGD):
    fails = False

    def step(self, closure=None):
        if self.fails:
            raise MemoryError
        return super().step(closure)


opt = Fragile(model.parameters(), 0.05)
losses, failed = [], 0
for step in range(200):
    opt.fails = step in (1, 17, 90, 91, 150)
    opt.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    try:
        opt.step()
    except MemoryError:
        failed += 1
        continue
    losses.append(loss.item())
print(failed, len(losses), repr(losses[-1]))
