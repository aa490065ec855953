"""An optimizer that works on copies elsewhere: at its step the memory of parameters and gradients is not there."""

import torch
from torch import nn


class Offloaded(torch.optim.SGD):
    """Moves what it steps to its own memory; the model's is given back while it works, and after it."""

    def __init__(self, params, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.home = {p: p.detach().clone() for group in self.param_groups for p in group["params"]}
        self.grads = {}

    def take(self) -> None:
        for p in self.home:
            self.grads[p] = p.grad.clone()
            p.grad.untyped_storage().resize_(0)
            p.untyped_storage().resize_(0)

    def step(self, closure=None):
        for p, home in self.home.items():
            home.add_(self.grads[p], alpha=-self.param_groups[0]["lr"])

    def give(self) -> None:
        for p, home in self.home.items():
            p.grad = None
            p.untyped_storage().resize_(home.numel() * home.element_size())
            p.data.copy_(home)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 2))
optimizer = Offloaded(model.parameters(), 0.05)
losses: list[float] = []
for step in range(300):
    x = torch.randn(16, 8)
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.take()
    optimizer.step()
    optimizer.give()
    losses.append(loss.item())
print(repr(losses[-1]))
