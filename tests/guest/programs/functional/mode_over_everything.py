"""A TorchDispatchMode that counts every operation of the whole program, backward and optimizer included."""
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Count(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Count.calls += 1
        return func(*args, **(kwargs or {}))


torch.manual_seed(32)
with Count():
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    for i in range(15):
        loss = net(torch.randn(4, 3)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
print(Count.calls, loss.item())
