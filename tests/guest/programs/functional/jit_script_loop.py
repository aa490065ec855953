"""Scripting and tracing modules again and again in the loop, and training the scripted one."""
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(24)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, hard: bool = False) -> torch.Tensor:
        if hard:
            return (self.l(x) > 0).float() * x
        return torch.sigmoid(self.l(x)) * x


net = Gate()
scripted = torch.jit.script(net)
opt = torch.optim.SGD(scripted.parameters(), lr=0.5)
out = []
for i in range(12):
    x = torch.randn(5, 4)
    loss = scripted(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 5 == 0:
        t = torch.jit.trace(net, x)
        s = torch.jit.script(net)
        out.append((t(x) - s(x)).abs().max().item())
    out.append(loss.item())
print(out)
