"""torch.ao.quantization's eager-mode QAT: prepare_qat, train, convert to int8."""
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
import torch.ao.quantization as tq

torch.manual_seed(30)
torch.backends.quantized.engine = [e for e in torch.backends.quantized.supported_engines if e != "none"][0]
net = nn.Sequential(tq.QuantStub(), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2), tq.DeQuantStub())
net.qconfig = tq.get_default_qat_qconfig(torch.backends.quantized.engine)
tq.prepare_qat(net.train(), inplace=True)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
ls = []
for i in range(10):
    x = torch.randn(8, 5)
    l = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
int8 = tq.convert(net.eval())
print(ls, int8(torch.ones(1, 5)).tolist())
