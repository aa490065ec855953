"""A forward that runs layers inside of vmap, grad, jvp and jacrev: their tensors stand for many.

slow
"""

import torch
from torch import nn
from torch.func import grad, jacrev, jvp, vmap


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.act = nn.Linear(3, 8), nn.Linear(8, 1), nn.Softplus()
        self.gate = nn.Linear(3, 3)

    def energy(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.act(self.first(x))).squeeze(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        force = vmap(grad(self.energy))(x)
        _, along = jvp(self.gate, (x,), (torch.ones_like(x),))
        jacobian = vmap(jacrev(self.gate))(x[:2])
        return force * along + jacobian.diagonal(dim1=1, dim2=2).sum() * vmap(self.gate)(x)


torch.manual_seed(0)
model = Field()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses: list[float] = []
for step in range(150):
    x = torch.randn(8, 3)
    optimizer.zero_grad()
    loss = (model(x) + x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(repr(losses[-1]))
