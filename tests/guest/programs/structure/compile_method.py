"""model.compile() in place, trained, evaluated under inference mode, then dynamo reset and trained eagerly.
slow"""
import torch
from torch import nn

torch.manual_seed(155)
net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Linear(6, 1))
net.compile(backend="aot_eager")
opt = torch.optim.Adam(net.parameters(), lr=0.01)
ls = []
for i in range(16):
    if i == 10:
        torch._dynamo.reset()
        net._compiled_call_impl = None
    x = torch.randn(8, 3)
    l = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
    if i == 5:
        net.eval()
        with torch.inference_mode():
            ls.append(net(x).sum().item())
        net.train()
print(ls[-1])
