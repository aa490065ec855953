"""A model that is made on the meta device, called there once to learn shapes, and then given memory and trained."""

import torch
from torch import nn

torch.manual_seed(0)
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.empty(4, 6, device="meta")).sum().backward()
optimizer.step()
optimizer.zero_grad()
model.to_empty(device="cpu")
for layer in model:
    if hasattr(layer, "reset_parameters"):
        layer.reset_parameters()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses: list[float] = []
for step in range(120):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 10 == 0:
        weights = {n: p.detach().to("meta") for n, p in model.named_parameters()}
        shape = torch.func.functional_call(model, weights, (torch.empty(3, 6, device="meta"),)).shape
        del weights
print(repr(losses[-1]), shape)
