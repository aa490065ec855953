"""Gradients whose memory lies in one flat buffer that is given back between steps, and smaller at some of them."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 4))
params = list(model.parameters())
flat = torch.zeros(sum(p.numel() for p in params))
ends = torch.tensor([p.numel() for p in params]).cumsum(0).tolist()
views = [flat[end - p.numel() : end].view_as(p) for p, end in zip(params, ends)]
optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.5)
losses: list[float] = []
for step in range(400):
    flat.untyped_storage().resize_(flat.numel() * 4)
    flat.zero_()
    for p, view in zip(params, views):
        p.grad = view
    x = torch.randn(8, 16)
    loss = (model(x) - x[:, :4]).square().mean()
    loss.backward()
    optimizer.step()
    flat.untyped_storage().resize_(0 if step % 2 else 256)
    if step % 6 == 5:
        optimizer.param_groups[0]["lr"] = 0.0
        for p in params:
            p.requires_grad_(False)
        flat.untyped_storage().resize_(flat.numel() * 4)
        flat.zero_()
        optimizer.step()
        flat.untyped_storage().resize_(0)
        for p in params:
            p.requires_grad_(True)
        optimizer.param_groups[0]["lr"] = 0.05
    losses.append(loss.item())
optimizer.zero_grad()
print(repr(losses[-1]))
