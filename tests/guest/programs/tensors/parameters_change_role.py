"""A parameter becomes a buffer and a parameter again; others are views into one flat tensor, and shared as views."""

import torch
from torch import nn

torch.manual_seed(210)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Parameter(torch.randn(24))
        self.gain = nn.Parameter(torch.ones(4))
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)
        self.b.weight = nn.Parameter(self.flat.detach()[:4].view(1, 4))  # lies in the memory of another
        self.a.bias = nn.Parameter(self.a.weight.detach()[0])  # and this in that of the weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.flat[4:20].view(4, 4)
        return self.b(torch.tanh(self.a(x) * self.gain) @ inner)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.02)
losses: list[float] = []
for step in range(60):
    x = torch.randn(8, 4)
    opt.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step == 20:
        kept = net.gain.detach().clone()
        del net.gain
        net.register_buffer("gain", kept)
    if step == 40:
        kept = net.gain
        del net.gain
        net.gain = nn.Parameter(kept)
        opt.add_param_group({"params": [net.gain], "lr": 0.01})
print(repr(losses[-1]), [tuple(p.shape) for p in net.parameters()])
