"""Tests that each make a session of their own, run one after the other as a test runner would.

slow
"""
import torch
from torch import nn

from neuraldbg import NeuralDbg

verdicts = []


def train(net, steps=12, lr=0.1):
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    x, y = torch.randn(16, 3), torch.randn(16, 1)
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
    return loss.item()


def test_falls():
    net = nn.Linear(3, 1)
    with NeuralDbg(net, probes=False) as dbg:
        last = train(net)
    verdicts.append((dbg.steps, dbg.diagnose().verdict, last))


def test_explodes():
    net = nn.Linear(3, 1)
    with NeuralDbg(net, probes=False) as dbg:
        last = train(net, 60, 1e6)
    verdicts.append((dbg.steps, dbg.diagnose().verdict, last))


torch.manual_seed(11)
for test in [value for name, value in list(globals().items()) if name.startswith("test_")]:
    test()
print(verdicts)
del test
