"""An optimizer whose step raises in the middle of its work; the training catches it and goes on."""
import torch
from torch import nn


class Flaky(torch.optim.SGD):
    n = 0

    def step(self, closure=None):
        Flaky.n += 1
        if Flaky.n % 4 == 0:
            self.param_groups[0]["params"][0].data.mul_(0.5)
            raise OSError("disk of the parameter server")
        return super().step(closure)


torch.manual_seed(53)
net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
opt = Flaky(net.parameters(), lr=0.1)
opt.register_step_pre_hook(lambda o, a, k: None)
opt.register_step_post_hook(lambda o, a, k: counts.append(1))
counts, errs = [], 0
for i in range(18):
    l = net(torch.randn(5, 2)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    try:
        opt.step()
    except OSError:
        errs += 1
print(errs, len(counts), l.item())
