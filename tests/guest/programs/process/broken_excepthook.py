"""An excepthook that is broken itself, and stderr replaced by an object that has only a write method."""
import sys

import torch

w = torch.nn.Parameter(torch.ones(3))
opt = torch.optim.SGD([w], lr=0.1)
for i in range(6):
    opt.zero_grad()
    w.sum().pow(2).backward()
    opt.step()


class Tee:
    def __init__(self, f):
        self.f = f
        self.n = 0

    def write(self, s):
        self.n += len(s)
        return self.f.write(s)

    def flush(self):
        self.f.flush()


sys.stderr = Tee(sys.stderr)
sys.excepthook = lambda *a: 1 / 0
raise ValueError("the real reason")
