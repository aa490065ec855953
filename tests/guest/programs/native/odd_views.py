"""Layers that return views of every kind: expanded, negated, conjugated, transposed, sliced, overlapping, empty."""

import torch
from torch import nn


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.kinds = nn.ModuleList(nn.Identity() for _ in range(9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.mix(x)
        k = self.kinds
        total = k[0](h[:, :1].expand(-1, 300)).mean(1)
        total = total + k[1](torch.complex(h, h).conj().imag).mean(1)
        total = total + k[2](torch.complex(h, h).conj()).real.mean(1)
        total = total + k[3](h.t()).mean(0)
        total = total + k[4](h[:, ::2]).mean(1)
        total = total + k[5](h.unfold(1, 4, 1)).mean((1, 2))
        total = total + k[6](h[:0]).sum()
        total = total + k[7](h.as_strided((16, 4, 4), (8, 1, 1))).mean((1, 2))
        return total + k[8](torch.complex(h, h)[3, 3].conj().imag)


torch.manual_seed(0)
model = Views()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses: list[float] = []
for step in range(150):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = (model(x) - x[:, 0]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(repr(losses[-1]))
