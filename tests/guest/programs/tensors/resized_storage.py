"""The storages of activations and weights given back by resize_(0) after use, and filled again before the next."""
import torch
from torch import nn

torch.manual_seed(127)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
store = {}


def offload(m, *_):
    for n, p in m.named_parameters(recurse=False):
        store[p] = p.detach().clone()
        p.untyped_storage().resize_(0)


def load(m, *_):
    for n, p in m.named_parameters(recurse=False):
        if p in store:
            p.untyped_storage().resize_(store[p].untyped_storage().nbytes())
            with torch.no_grad():
                p.copy_(store.pop(p))


frozen = nn.Linear(3, 3).requires_grad_(False)
frozen.register_forward_pre_hook(load)
frozen.register_forward_hook(offload)
ls = []
for i in range(12):
    x = torch.randn(4, 3)
    h = frozen(x)
    l = net(h).pow(2).mean()
    y = torch.ones(1000)
    y.untyped_storage().resize_(0)
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
load(frozen)
del y, store
print(ls[-1])
