"""logging configured with handlers, levels, captureWarnings and a LogRecord factory; logging.disable at the end."""
import io
import logging
import warnings

import torch
from torch import nn

buf = io.StringIO()
logging.basicConfig(stream=buf, level=logging.DEBUG, format="%(levelname)s %(name)s %(funcName)s %(lineno)d %(message)s", force=True)
logging.captureWarnings(True)
old = logging.getLogRecordFactory()
made = []
logging.setLogRecordFactory(lambda *a, **k: (made.append(a[0]), old(*a, **k))[1])
log = logging.getLogger("trainer")
torch.manual_seed(105)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(8):
    l = nn.functional.mse_loss(net(torch.randn(4, 3)), torch.zeros(4))
    opt.zero_grad()
    l.backward()
    opt.step()
    log.info("step %d loss %r", i, l.item())
logging.captureWarnings(False)
lines = [x for x in buf.getvalue().splitlines() if x.startswith("INFO")]
print(len(buf.getvalue().splitlines()), made, lines[-1])
