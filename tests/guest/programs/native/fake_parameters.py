"""A model of FakeTensors beside a real one, both trained in turns by optimizers of their own."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

torch.manual_seed(0)
mode = FakeTensorMode()
with mode:
    sketch = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 1))
    sketch_optimizer = torch.optim.SGD(sketch.parameters(), lr=0.1)
model = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses: list[float] = []
for step in range(60):
    x = torch.randn(16, 6)
    if step % 3 == 1:
        with mode:
            sketch_optimizer.zero_grad()
            sketch(torch.empty(16, 6)).square().mean().backward()
            sketch_optimizer.step()
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(repr(losses[-1]), type(next(sketch.parameters())).__name__)
