"""vmap with randomness="different" over a dropout network, and chunked vmap."""
import torch
from torch import nn
from torch.func import functional_call, vmap

torch.manual_seed(22)
net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
res = []
for i in range(10):
    x = torch.randn(6, 4)
    many = vmap(lambda z: functional_call(net, dict(net.named_parameters()), (z,)), randomness="different", chunk_size=2)(x)
    loss = many.var() + net(x).mean() ** 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    res.append(loss.item())
print(res)
