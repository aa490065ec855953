"""A compiled model saved, copied and loaded with weights_only while it trains; layers that are called their own way.

slow
"""
import copy
import hashlib
import io
import logging

import torch
from torch import nn

logging.disable(logging.WARNING)
torch.manual_seed(11)


class Own(nn.Linear):
    def __call__(self, x):
        return self._call_impl(x)


net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
own = nn.Sequential(Own(3, 3), nn.Tanh())
call = torch.compile(net, backend="eager")
opt = torch.optim.SGD([*net.parameters(), *own.parameters()], lr=0.1)
safe = [nn.Sequential, nn.Linear, nn.ReLU]
hashes, losses, counts = [], [], []
for i in range(10):
    loss = call(own(torch.randn(6, 3))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if i in (0, 5, 9):
        for module in (net, own):
            buffer = io.BytesIO()
            torch.save(module, buffer)
            hashes.append(hashlib.sha256(buffer.getvalue()).hexdigest()[:16])
            twin = copy.deepcopy(module)
            counts += [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in twin.modules()]
            if module is net:
                buffer.seek(0)
                with torch.serialization.safe_globals(safe):
                    losses.append(torch.load(buffer, weights_only=True)(torch.ones(1, 3)).item())
print(losses, hashes, counts)
