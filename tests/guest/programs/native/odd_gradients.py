"""Gradients of every kind at the optimizer: sparse, expanded, of another dtype, strided, freed, shared by two weights."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.ModuleDict({
    "table": nn.Embedding(50, 8, sparse=True),
    "scale": nn.Linear(8, 8, bias=False),
    "bias": nn.Linear(8, 8),
    "head": nn.Linear(8, 2),
})
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses: list[float] = []
for step in range(300):
    ids = torch.randint(0, 50, (16,))
    optimizer.zero_grad()
    hidden = model["bias"](model["scale"](model["table"](ids)))
    loss = model["head"](hidden).square().mean() + (ids % 2).float().mean() * hidden.mean()
    loss.backward()
    model["scale"].weight.grad = torch.full((1,), 0.001).expand(8, 8)
    model["bias"].weight.grad = model["bias"].weight.grad.t().contiguous().t()
    shared = model["bias"].bias.grad
    model["head"].weight.grad = torch.cat([model["head"].weight.grad, model["head"].weight.grad], 1)[:, ::2]
    model["bias"].bias.grad = shared[::1]
    optimizer.step()
    if step % 4 == 1:
        model["head"].bias.grad.untyped_storage().resize_(0)
    losses.append(loss.item())
    del hidden
print(repr(losses[-1]))
