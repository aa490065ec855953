"""sys.exit with a text in the middle of the training, within try/finally and with statements."""
import contextlib
import sys

import torch
from torch import nn

torch.manual_seed(80)
done = []


@contextlib.contextmanager
def stage(n):
    try:
        yield
    finally:
        done.append(n)


net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
try:
    for i in range(30):
        with stage(i):
            l = net(torch.randn(3, 2)).pow(2).mean()
            opt.zero_grad()
            l.backward()
            opt.step()
            if i == 12:
                sys.exit("converged, I think")
finally:
    print("finally", len(done))
