"""An exception with notes, a __str__ that raises, and a traceback that is kept and printed by the program."""
import io
import traceback

import torch
from torch import nn


class Odd(Exception):
    def __str__(self):
        raise ValueError("no text")


torch.manual_seed(84)
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
for i in range(10):
    try:
        l = net(torch.randn(3, 2)).pow(2).mean()
        l.backward()
        opt.step()
        if i % 3 == 0:
            raise Odd
    except Odd as e:
        buf = io.StringIO()
        traceback.print_exc(file=buf)
        kept.append(buf.getvalue())
print(kept[0])
raise Odd
