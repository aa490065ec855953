"""The optimizer step inside the backward pass, by post accumulate hooks, one optimizer for each parameter."""
import torch
from torch import nn

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
opts = {p: torch.optim.SGD([p], lr=0.05) for p in model.parameters()}


def hook(p):
    opts[p].step()
    opts[p].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(hook)
losses = []
for _ in range(20):
    x = torch.randn(9, 6)
    l = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    l.backward()
    losses.append(l.item())
print(losses[-1], [p.grad for p in model.parameters()])
