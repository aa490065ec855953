"""A session around an exception that is caught outside, and one around an exception that ends the program."""
import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(15)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def train(until):
    for i in range(until + 1):
        opt.zero_grad()
        net(torch.randn(4, 3 if i < until else 2)).pow(2).mean().backward()
        opt.step()


try:
    with NeuralDbg(net, probes=False) as dbg:
        train(6)
except RuntimeError as error:
    print(type(error).__name__, dbg.steps)
with NeuralDbg(net, probes=False) as dbg:
    train(4)
