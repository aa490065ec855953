"""A whole training under FakeTensorMode: every tensor has a shape and no memory (a dry run of shapes)."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

torch.manual_seed(0)
steps = 0
with FakeTensorMode():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(12, 8), torch.randint(0, 3, (12,))
    for _ in range(30):
        optimizer.zero_grad()
        output = model(x)
        loss = nn.functional.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        steps += 1
    shapes = [tuple(p.shape) for p in model.parameters()] + [tuple(output.shape), tuple(loss.shape)]
    del output
print(steps, shapes)
