"""The default dtype set to float64, later a default device and a float16 model beside it."""
import torch
from torch import nn

torch.manual_seed(123)
torch.set_default_dtype(torch.float64)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
half = nn.Linear(3, 3).to(torch.float16)
bf = nn.Linear(3, 3, dtype=torch.bfloat16)
opt = torch.optim.SGD([*net.parameters(), *half.parameters(), *bf.parameters()], lr=0.05)
torch.set_default_device("cpu")
ls = []
for i in range(15):
    x = torch.randn(4, 3)
    l = net(half(x.half()).double() + bf(x.bfloat16()).double()).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1], net[0].weight.dtype)
