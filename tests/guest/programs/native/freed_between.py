"""Storages given back between forward and backward and filled again in a hook, as FSDP1 does with gathered weights."""

import torch
from torch import nn

torch.manual_seed(207)


class Gathered(nn.Module):
    """A layer whose weight is there only while it is used: forward, and again in the backward pass."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.shard = nn.Parameter(torch.randn(fan_out, fan_in) / fan_in**0.5)
        self.whole = torch.empty(fan_out, fan_in)
        self.free()

    def free(self) -> None:
        self.whole.untyped_storage().resize_(0)

    def fill(self) -> None:
        self.whole.untyped_storage().resize_(4 * self.shard.numel())
        with torch.no_grad():
            torch.autograd._unsafe_preserve_version_counter(self.whole).__enter__()
            self.whole.set_(self.whole.untyped_storage(), 0, self.shard.shape, self.shard.stride())
            self.whole.view(torch.int32).copy_(self.shard.detach().view(torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.fill()
        y = Use.apply(x, self.shard, self)
        self.free()
        return y


class Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, layer):
        ctx.save_for_backward(x)
        ctx.layer = layer
        return x @ layer.whole.t()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        ctx.layer.fill()
        to_input = grad @ ctx.layer.whole
        ctx.layer.free()
        return to_input, grad.t() @ x, None


net = nn.Sequential(Gathered(4, 16), nn.Tanh(), Gathered(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
losses: list[float] = []
for step in range(120):
    x = torch.randn(8, 4)
    opt.zero_grad()
    out = net[1](net[0](x)) if step % 5 == 4 else None
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    if out is not None:
        out.untyped_storage().resize_(0)
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(repr(losses[-1]))
del net, opt, out
