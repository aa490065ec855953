"""A SIGALRM time limit for every evaluation, that raises an exception from the handler wherever it is."""
import signal
import time

import torch
from torch import nn


class TooSlow(Exception):
    pass


def ring(num, frame):
    raise TooSlow


signal.signal(signal.SIGALRM, ring)
torch.manual_seed(91)
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
slow = 0
for i in range(8):
    l = net(torch.randn(3, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        while True:
            time.sleep(0.001)
    except TooSlow:
        slow += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
print(slow, l.item())
