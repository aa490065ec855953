"""Tensor hooks that change gradients, one registered and removed in every step."""
import torch
from torch import nn

torch.manual_seed(7)
m = nn.Linear(5, 5)
m.weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
seen = []
opt = torch.optim.SGD(m.parameters(), lr=1.0, momentum=0.9)
for i in range(15):
    x = torch.randn(7, 5)
    y = m(x)
    h = y.register_hook(lambda g: g * 2)
    y2 = torch.relu(y)
    y2.retain_grad()
    h2 = y2.register_hook(lambda g: seen.append(g.norm().item()))
    if i % 3 == 0:
        h.remove()
    loss = y2.square().mean()
    opt.zero_grad(set_to_none=False)
    loss.backward()
    opt.step()
print(len(seen), seen[-1], y2.grad.sum().item())
