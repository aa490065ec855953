"""Outputs whose memory is given back after their use, and made again in the backward pass (selective recomputation)."""

import torch
from torch import nn


class Freed(nn.Module):
    """Gives the memory of its output back as soon as it is made; a hook of the backward pass fills it again."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.inner(x)
        kept = made.detach().clone()
        made.untyped_storage().resize_(0)
        return Refill.apply(made, kept)


class Refill(torch.autograd.Function):
    @staticmethod
    def forward(ctx, made, kept):
        ctx.made, ctx.kept = made, kept
        return kept.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.made.untyped_storage().resize_(ctx.kept.numel() * 4)
        ctx.made.detach().copy_(ctx.kept)
        return grad, None


class Hollow(nn.Module):
    """Returns a tensor that has lost its memory: only its graph is of use."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = x * 1.0
        made.untyped_storage().resize_(0)
        return made


class Fill(nn.Module):
    def forward(self, made: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return Straight.apply(made, x.detach())


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, made, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = Freed(nn.Linear(8, 400)), nn.ReLU(), nn.Linear(400, 2)
        self.hollow, self.fill = Hollow(), Fill()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.b(self.a(x))
        h = self.fill(self.hollow(h), h)
        return self.c(h)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses: list[float] = []
for step in range(300):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(repr(losses[-1]))
