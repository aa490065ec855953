"""The deprecated torch.nn.utils.weight_norm and spectral_norm, which work by forward pre hooks."""
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(27)
a = nn.utils.weight_norm(nn.Linear(4, 6))
b = nn.utils.spectral_norm(nn.Linear(6, 1))
opt = torch.optim.Adam([*a.parameters(), *b.parameters()], lr=0.01)
ls = []
for i in range(15):
    x = torch.randn(7, 4)
    l = (b(torch.relu(a(x))) - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    l.backward()
    nn.utils.clip_grad_norm_([*a.parameters(), *b.parameters()], 0.5)
    opt.step()
    ls.append(l.item())
nn.utils.remove_weight_norm(a)
print(ls[-1], sorted(n for n, _ in a.named_parameters()))
