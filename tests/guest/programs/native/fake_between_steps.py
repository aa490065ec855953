"""A real training that now and then runs its own model under FakeTensorMode, to foresee the memory of a step.

slow
"""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses: list[float] = []
foreseen: list[int] = []


def foresee(size: int) -> int:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        x = mode.from_tensor(torch.empty(1, 8)).expand(size, 8) if size % 2 else torch.empty(size, 8)
        output = model(x)
        grads = torch.autograd.grad(output.square().mean(), list(model.parameters()))
        return output.numel() + sum(g.numel() for g in grads)


for step in range(300):
    x, y = torch.randn(12, 8), torch.randint(0, 3, (12,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 7 == 3:
        foreseen.append(foresee(step + 1))
print(repr(losses[-1]), foreseen[-3:])
