"""saved_tensors_hooks that pack activations as half precision numpy arrays, and save_on_cpu."""
import torch
from torch import nn

torch.manual_seed(10)
net = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.3)
packs = 0


def pack(t):
    global packs
    packs += 1
    return t.detach().numpy().copy()


def unpack(a):
    return torch.from_numpy(a)


r = []
for i in range(14):
    x = torch.randn(6, 8)
    ctx = torch.autograd.graph.saved_tensors_hooks(pack, unpack) if i % 2 else torch.autograd.graph.save_on_cpu()
    with ctx:
        loss = nn.functional.binary_cross_entropy_with_logits(net(x), (x.sum(1, keepdim=True) > 0).float())
    opt.zero_grad()
    loss.backward()
    opt.step()
    r.append(loss.item())
print(packs, r[-1])
