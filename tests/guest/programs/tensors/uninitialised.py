"""torch.empty with deterministic algorithms that fill it, use_deterministic_algorithms switched on and off.

What torch.empty gives while they are off is memory that was used before, by whomever: malloc promises nothing of it, and
whoever allocates anything in this process changes it. So the values are looked at only where torch fills them.
"""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
from torch import nn

torch.manual_seed(132)
torch.use_deterministic_algorithms(True, warn_only=False)
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
errs, filled = [], []
for i in range(12):
    e = torch.empty(3, 3)
    if torch.are_deterministic_algorithms_enabled():
        filled.append(int(torch.isnan(e).sum()))
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
print(len(errs), filled, l.item())
