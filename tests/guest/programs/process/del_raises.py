"""__del__ methods that raise, of a model in the loop and of one at interpreter shutdown."""
import gc

import torch
from torch import nn


class Doomed(nn.Linear):
    def __del__(self):
        raise RuntimeError("do not let me go")


torch.manual_seed(85)
for run in range(3):
    net = Doomed(2, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(5):
        l = net(torch.randn(3, 2)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
    del net, opt
    gc.collect()
print(l.item())
