import math
import torch
from torch import nn
from sklearn.datasets import make_moons

torch.manual_seed(33)
data, _ = make_moons(6000, noise=0.08, random_state=33)
data = torch.tensor(data, dtype=torch.float32)
data = (data - data[:5000].mean(0)) / data[:5000].std(0)
tr, te = data[:5000], data[5000:]


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
        # every coupling starts as the identity
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = 2 * torch.tanh(s / 2)
        b = b * s.exp() + t
        return (torch.cat([b, a], 1) if self.flip else torch.cat([a, b], 1)), s.squeeze(1)


class Flow(nn.Module):
    def __init__(self, n=6):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(n))

    def log_prob(self, x):
        ld = 0.0
        for l in self.layers:
            x, s = l(x)
            ld = ld + s
        return -0.5 * (x ** 2).sum(1) - math.log(2 * math.pi) + ld


flow = Flow()
opt = torch.optim.Adam(flow.parameters(), lr=8e-3)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 500, eta_min=5e-5)
for step in range(500):
    xb = tr[torch.randint(0, 5000, (256,))]
    nll = -flow.log_prob(xb).mean()
    opt.zero_grad(set_to_none=True)
    nll.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    opt.step()
    sch.step()
    if step == 0 or step % 100 == 99:
        with torch.no_grad():
            print(step + 1, "nll %.3f test %.3f" % (nll.item(), -flow.log_prob(te).mean().item()))
with torch.no_grad():        # kernel density estimate for comparison
    h = 0.08
    lp = torch.logsumexp(-torch.cdist(te, tr) ** 2 / (2 * h * h), 1) - math.log(5000 * 2 * math.pi * h * h)
    print("kde test nll %.3f, gaussian %.3f" % (-lp.mean(), 1 + math.log(2 * math.pi)))
