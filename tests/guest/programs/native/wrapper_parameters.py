"""Parameters that are a wrapper subclass of the program's, each with a scale and a tensor of halves inside of it."""

import torch
from torch import nn
from torch.utils._pytree import tree_map_only


class Scaled(torch.Tensor):
    calls = 0

    @staticmethod
    def __new__(cls, inner: torch.Tensor, scale: float) -> "Scaled":
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32, device=inner.device)

    def __init__(self, inner: torch.Tensor, scale: float) -> None:
        self.inner, self.scale = inner, scale

    def __repr__(self) -> str:
        return f"Scaled({self.scale})"

    def full(self) -> torch.Tensor:
        return self.inner.float() * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        Scaled.calls += 1
        kwargs = kwargs or {}
        if func is torch.ops.aten.detach.default:
            return Scaled(args[0].inner, args[0].scale)
        target = args[0] if isinstance(args[0], Scaled) and func._schema.is_mutable else None
        plain_args, plain_kwargs = tree_map_only(Scaled, lambda t: t.full(), (args, kwargs))
        result = func(*plain_args, **plain_kwargs)
        if target is not None:
            target.inner.copy_((result / target.scale).to(target.inner.dtype))
            return target
        return result


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
for layer in (model[0], model[2]):
    layer.weight = nn.Parameter(Scaled(layer.weight.detach().mul(4).to(torch.bfloat16), 0.25))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
losses: list[float] = []
for step in range(300):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
calls = Scaled.calls
weights = [layer.weight.full() for layer in (model[0], model[2])]
print(repr(losses[-1]), calls)
