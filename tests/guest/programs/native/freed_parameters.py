"""Parameters whose memory is given back after the forward and after the backward pass, and fetched before, as FSDP1 does."""

import torch
from torch import nn


class Sharded:
    """Keeps the numbers elsewhere, and gives the storage back between uses."""

    def __init__(self, layer: nn.Module) -> None:
        self.params = list(layer.parameters())
        self.home = [p.detach().clone() for p in self.params]
        layer.register_forward_pre_hook(lambda *_: self.gather())
        layer.register_forward_hook(lambda *_: self.free())
        layer.register_full_backward_pre_hook(lambda *_: self.gather())

    def gather(self) -> None:
        for p, home in zip(self.params, self.home):
            if p.untyped_storage().nbytes() == 0:
                p.untyped_storage().resize_(home.numel() * home.element_size())
                with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(p):
                    p.copy_(home)

    def free(self) -> None:
        for p, home in zip(self.params, self.home):
            if p.untyped_storage().nbytes():
                home.copy_(p.detach())
                p.untyped_storage().resize_(0)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
shards = [Sharded(layer) for layer in model if isinstance(layer, nn.Linear)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses: list[float] = []
for step in range(300):
    x = torch.randn(16, 8, requires_grad=True)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2].detach()).square().mean()
    loss.backward()
    for shard in shards:
        shard.gather()
    optimizer.step()
    for shard in shards:
        shard.free()
    losses.append(loss.item())
for shard in shards:
    shard.gather()
print(repr(losses[-1]))
