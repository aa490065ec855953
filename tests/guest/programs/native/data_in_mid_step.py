"""Weights whose ``.data`` is another between forward and backward, between backward and step, and inside of the step."""

import torch
from torch import nn

torch.manual_seed(209)


class Averaged(torch.optim.SGD):
    """Puts new memory under its parameters as it steps."""

    def step(self, closure=None):
        found = super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data.clone() if p.numel() % 2 else p.data.t().contiguous().t() if p.dim() == 2 else p.data
        return found


net = nn.Sequential(nn.Linear(4, 15), nn.Tanh(), nn.Linear(15, 5), nn.Tanh(), nn.Linear(5, 1))
opt = Averaged(net.parameters(), lr=0.05, momentum=0.5)
losses: list[float] = []
for step in range(150):
    x = torch.randn(8, 4)
    opt.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    if step % 4 == 1:
        net[0].bias.data = net[0].bias.data.clone()
    loss.backward()
    if step % 4 == 2:
        for p in net.parameters():
            p.data = torch.empty_like(p.data).copy_(p.data)
            p.grad.data = p.grad.data.clone()
    if step % 16 == 3:
        held = net[2].weight.data
        net[2].weight.data = torch.zeros(0)
        net[2].weight.data = held
    opt.step()
    losses.append(loss.item())
print(repr(losses[-1]))
