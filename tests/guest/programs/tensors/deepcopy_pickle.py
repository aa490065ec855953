"""Models deep-copied, pickled, saved whole and loaded while they train; copies trained further on their own."""
import copy
import io
import pickle

import torch
from torch import nn

torch.manual_seed(134)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))

    def forward(self, x):
        return self.l(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
ls, sizes = [], []
for i in range(12):
    l = net(torch.randn(5, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
    if i == 5:
        twin = copy.deepcopy(net)
        blob = pickle.dumps(net)
        buf = io.BytesIO()
        torch.save(net, buf)
        sizes += [len(blob), len(buf.getvalue())]
        net2 = pickle.loads(blob)
        buf.seek(0)
        net3 = torch.load(buf, weights_only=False)
        opt2 = copy.deepcopy(opt)
for m in (twin, net2, net3):
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(3):
        m(torch.ones(2, 3)).sum().backward()
        o.step()
del blob  # it names storages by their addresses
print(sizes, ls[-1])
