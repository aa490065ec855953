"""The program's names hide those of builtins, its __builtins__ are cut down, and its classes lie about their names."""

import torch
from torch import nn

len = lambda x: 3  # noqa: E731
isinstance = issubclass = lambda *args: True  # noqa: E731
type = str
__file__ = "/nowhere/at/all.py"
__name__ = "sqlite3"


class Net(nn.Module):
    __module__ = "torch.nn.modules.linear"
    __qualname__ = "Linear"

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, x):
        return self.b(self.a(x).tanh())

    def __repr__(self):
        raise RuntimeError("no name")

    __str__ = __hash__ = __repr__
    __hash__ = nn.Module.__hash__


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(30):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(len(losses), losses[-1])
