"""Activations that are a wrapper subclass: they have a shape, and their numbers lie in a tensor inside of them.

slow
"""

import torch
from torch import nn
from torch.utils._pytree import tree_map_only


class Logged(torch.Tensor):
    calls = 0

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Logged":
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device,
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"Logged({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        Logged.calls += 1
        args, kwargs = tree_map_only(Logged, lambda t: t.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Logged, func(*args, **kwargs))


class Wrap(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Wrapping.apply(x)


class Wrapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Logged(x.detach().clone())

    @staticmethod
    def backward(ctx, grad):
        return grad.inner if isinstance(grad, Logged) else grad


class Unwrapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.inner.clone() if isinstance(x, Logged) else x.clone()

    @staticmethod
    def backward(ctx, grad):
        return Logged(grad.clone())


class Unwrap(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Unwrapping.apply(x)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), Wrap(), nn.ReLU(), nn.Tanh(), Unwrap(), nn.Linear(12, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses: list[float] = []
for step in range(300):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
calls = Logged.calls
print(repr(losses[-1]), calls)
