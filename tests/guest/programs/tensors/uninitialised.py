"""torch.empty with deterministic algorithms that fill it, use_deterministic_algorithms switched on and off."""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
from torch import nn

torch.manual_seed(132)
torch.use_deterministic_algorithms(True, warn_only=False)
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
errs = []
for i in range(12):
    e = torch.empty(3, 3)
    bad = int(torch.isnan(e).sum())
    try:
        torch.ones(5).put_(torch.tensor([0]), torch.tensor([1.0]), accumulate=False)
    except RuntimeError as ex:
        errs.append(str(ex)[:30])
    l = net(torch.randn(2, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    if i == 6:
        torch.use_deterministic_algorithms(False)
    torch.set_num_threads(1)
del e
print(len(errs), l.item())
