"""A session whose with statement stands in a generator, which is closed in the middle."""
import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(13)


def training(net):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with NeuralDbg(net, probes=False) as dbg:
        while True:
            opt.zero_grad()
            loss = net(torch.randn(8, 3)).pow(2).mean()
            loss.backward()
            opt.step()
            yield loss.item(), dbg.steps


net = nn.Linear(3, 1)
seen = []
course = training(net)
for _ in range(9):
    seen.append(next(course))
course.close()
print(seen)
del course
