"""channels_last, transposed, expanded, overlapping and negative-bit tensors as weights, inputs and gradients."""
import torch
from torch import nn

torch.manual_seed(131)
conv = nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)
lin = nn.Linear(4, 6)
lin.weight = nn.Parameter(torch.randn(4, 6).t())
w = nn.Parameter(torch.randn(12).as_strided((6, 3), (1, 2)))
opt = torch.optim.SGD([*conv.parameters(), *lin.parameters(), w], lr=0.01)
ls = []
for i in range(12):
    x = torch.randn(2, 3, 1, 5).expand(2, 3, 5, 5).to(memory_format=torch.channels_last)
    h = conv(x).mean((2, 3))
    z = torch.view_as_complex(torch.randn(2, 4, 2)).conj().imag
    l = (lin(h + z) @ w.detach() + w.sum()).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1], w.stride())
