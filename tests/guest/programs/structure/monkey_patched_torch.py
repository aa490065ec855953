"""torch's own functions patched by the program: F.linear, Module.__call__, Tensor.backward, Optimizer.step, Linear.forward."""
import torch
import torch.nn.functional as F
from torch import nn

count = {"linear": 0, "call": 0, "backward": 0, "step": 0}
lin, call, back, step = F.linear, nn.Module.__call__, torch.Tensor.backward, torch.optim.SGD.step


def linear(x, w, b=None):
    count["linear"] += 1
    return lin(x, w, b) + 0.001 * torch.randn(())


def mcall(self, *a, **k):
    count["call"] += 1
    return call(self, *a, **k)


def backward(self, *a, **k):
    count["backward"] += 1
    return back(self, *a, **k)


def sgd_step(self, *a, **k):
    count["step"] += 1
    return step(self, *a, **k)


F.linear, nn.Module.__call__, torch.Tensor.backward, torch.optim.SGD.step = linear, mcall, backward, sgd_step
torch.manual_seed(145)
net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for i in range(40):
    x = torch.randn(16, 3)
    l = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
F.linear, nn.Module.__call__, torch.Tensor.backward, torch.optim.SGD.step = lin, call, back, step
print(count, l.item())
del lin, call, back, step
