"""A Jacobian by batched gradients: `torch.autograd.grad(..., is_grads_batched=True)`, in a training by its penalty."""

import torch
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(30):
    x = torch.randn(6, 4, requires_grad=True)
    out = model(x)
    rows = torch.eye(3)[:, None, :].expand(3, 6, 3)
    (jacobian,) = torch.autograd.grad(out, x, rows, is_grads_batched=True, create_graph=True)
    loss = out.square().mean() + 0.1 * jacobian.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(repr(loss.item()), jacobian.shape)
