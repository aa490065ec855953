"""A class with a dispatch of its own whose inner tensor is given back between two uses, as an offloading one does."""

import torch
from torch import nn
from torch.utils._pytree import tree_map


class Offloaded(torch.Tensor):
    """Holds its numbers elsewhere, and is filled when it is used."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Offloaded":
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner
        self.away = None

    def leave(self) -> None:
        if self.away is None:
            self.away = self.inner.clone()
            self.inner.untyped_storage().resize_(0)

    def come(self) -> torch.Tensor:
        if self.away is not None:
            self.inner.untyped_storage().resize_(4 * self.away.numel())
            self.inner.copy_(self.away)
            self.away = None
        return self.inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return Offloaded(args[0].inner.detach()) if args[0].away is None else args[0]
        args, kwargs = tree_map(lambda x: x.come() if isinstance(x, Offloaded) else x, (args, kwargs or {}))
        return func(*args, **kwargs)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 1)
        self.far = nn.Parameter(Offloaded(torch.randn(16)), requires_grad=False)
        self.register_buffer("table", Offloaded(torch.randn(16)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)) * self.far + self.table)


torch.manual_seed(206)
net = Net()
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)
losses: list[float] = []
for step in range(60):
    x = torch.randn(8, 4)
    opt.zero_grad()
    if step % 3:
        net.far.leave()
    net.table.leave()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    net.table.leave()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(repr(losses[-1]))
