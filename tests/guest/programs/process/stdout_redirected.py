"""stdout and stderr redirected into StringIO for the whole training, print captured and replayed."""
import contextlib
import io
import sys

import torch
from torch import nn

torch.manual_seed(97)
out, err = io.StringIO(), io.StringIO()
net = nn.Linear(2, 1)
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(8):
        l = net(torch.randn(3, 2)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        print(i, l.item())
        print("warn", i, file=sys.stderr)
text = out.getvalue() + err.getvalue()
print(text)
sys.stdout = io.StringIO()
print("nobody reads this")
