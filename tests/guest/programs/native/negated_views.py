"""Tensors that torch negates as it reads them: contiguous ones, conjugated losses, gradients and outputs."""

import torch
from torch import nn

torch.manual_seed(211)


class Negated(nn.Module):
    """Gives a contiguous view whose numbers have the other sign in memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._neg_view(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.negated, self.b = nn.Linear(4, 8), Negated(), nn.Linear(8, 2)
        self.turned = nn.Parameter(torch.randn(2, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(self.b(self.negated(torch.relu(self.a(x)))).reshape(-1, 2)) * self.turned[0]


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.02)
losses: list[float] = []
for step in range(60):
    x = torch.randn(8, 4)
    opt.zero_grad()
    out = net(x)
    other = torch.complex(x[:, 0], x[:, 1])
    apart = out - other
    if step % 3 == 0:
        loss = torch.vdot(apart, apart * 1j).conj().imag.neg()
    elif step % 3 == 1:
        loss = torch.vdot(apart, apart * -1j).conj().imag
    else:
        loss = apart.conj().imag.square().mean() + apart.real.square().mean()
    (loss / 8).backward()
    if step % 4 == 0:
        net.b.weight.grad = torch._neg_view(-net.b.weight.grad)
    opt.step()
    losses.append(loss.item())
print(repr(losses[-1]))
