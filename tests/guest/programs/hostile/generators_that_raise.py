"""Gradients to clip and losses to differentiate come from generators, which raise, and which compute as they go."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
spare = nn.Linear(2, 2)
optimizer = torch.optim.SGD([*model.parameters(), *spare.parameters()], lr=0.05)
losses: list[float] = []
caught: list[str] = []


def used(parameters):
    for parameter in parameters:
        if parameter.grad is None:
            raise RuntimeError("an unused parameter")
        yield parameter


def parts(x):
    for part in x.chunk(2):
        loss = (model(part) - part[:, :2]).square().mean()
        losses.append(loss.item())
        yield loss


for step in range(20):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    torch.autograd.backward(parts(x))
    for clip in (nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_):
        try:
            clip(used([*model.parameters(), *spare.parameters()]), 1.0)
        except RuntimeError as error:
            caught.append(str(error))
        clip(used(model.parameters()), 1.0)
    optimizer.step()
print(repr(losses[-1]), len(caught), set(caught))
del clip
