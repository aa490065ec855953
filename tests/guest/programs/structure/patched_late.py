"""A patch of Tensor.backward and of Module.__setattr__ put on and taken off around single steps."""
import torch
from torch import nn

torch.manual_seed(146)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
log = []
orig = torch.Tensor.backward


def loud(self, *a, **k):
    log.append(self.item())
    return orig(self, *a, **k)


for i in range(15):
    if i % 3 == 0:
        torch.Tensor.backward = loud
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    torch.Tensor.backward = orig
print(len(log), torch.Tensor.backward is orig)
