"""Time limits by SIGALRM that hit the forward and backward passes themselves; each ends its round."""
import signal

import torch
from torch import nn


class Limit(Exception):
    pass


def ring(*_):
    global rung
    rung += 1
    raise Limit


rung = hits = 0
signal.signal(signal.SIGALRM, ring)
torch.manual_seed(92)
net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(12)])
opt = torch.optim.Adam(net.parameters())
net(torch.ones(2, 4)).sum().backward()
opt.step()  # what torch imports at its first step is imported; there it says what falls into that
for i in range(25):
    try:
        # Python itself swallows one that falls into a destructor; one soon after would end what handles the first.
        signal.setitimer(signal.ITIMER_REAL, 0.003 + 0.0007 * i, 0.5)
        while True:
            net(torch.ones(2, 4)).sum().backward()
            opt.step()
    except Limit:
        signal.setitimer(signal.ITIMER_REAL, 0)
        torch.set_grad_enabled(True)  # torch's optimizers leave it off if one falls into their own "finally"
        hits += 1
del net, opt, rung
print(hits)
