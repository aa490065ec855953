"""A frozen parameter that is expanded: ten billion elements that are one in memory."""

import resource

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.full((1,), 0.5).expand(100_000, 100_000), requires_grad=False)
        self.shift = nn.Parameter(torch.zeros(6, 1).expand(6, 300_000), requires_grad=False)

    def forward(self, x):
        return self.inner(x) * self.scale[0, :6] + self.shift[:, 0]


torch.manual_seed(3)
model = Scaled()
optimizer = torch.optim.SGD(model.inner.parameters(), lr=0.05)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for step in range(40):
    loss = model(torch.randn(8, 6)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(repr(loss.item()), "grown by less than 300 MB" if grown < 300_000 else f"grown by {grown} kB")
del before, grown
