"""Whole models saved, copied and read back with weights_only in a loop that updates its weights by hand."""
import copy
import hashlib
import io

import torch
from torch import nn

torch.manual_seed(5)
net = nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.Sequential(nn.GELU(), nn.Linear(6, 1)))
safe = [nn.Sequential, nn.Linear, nn.LayerNorm, nn.GELU]
hashes, losses, loaded = [], [], None
for i in range(12):
    loss = net(torch.randn(8, 3)).pow(2).mean()
    loss.backward()
    if i % 4 != 3:
        buffer = io.BytesIO()
        torch.save({"net": net, "step": i}, buffer)
        hashes.append(hashlib.sha256(buffer.getvalue()).hexdigest()[:16])
        buffer.seek(0)
        with torch.serialization.safe_globals(safe + [getattr(torch._C._nn, "gelu", nn.GELU)]):
            loaded = torch.load(buffer, weights_only=True)["net"]
        twin = copy.deepcopy(net)
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in [*twin.modules(), *loaded.modules()])
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
    net.zero_grad()
    losses.append(loss.item())
print(hashes, losses[-1], loaded(torch.ones(1, 3)).item())
