# Bishop's inverse problem: y(x) is multi-valued, MSE would average the branches. Mixture density network.
import math, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(5)
K = 5
n = 5000
y = torch.rand(n, 1)
x = y + 0.3 * torch.sin(2 * math.pi * y) + 0.05 * torch.randn(n, 1)
x = (x - 0.5) / 0.3
y = (y - 0.5) / 0.29
n_tr = 4000

class MDN(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh())
        self.pi, self.mu, self.ls = nn.Linear(40, K), nn.Linear(40, K), nn.Linear(40, K)
        with torch.no_grad():
            self.mu.bias.copy_(torch.linspace(-1.5, 1.5, K))     # spread the components
    def nll(self, x, y):
        h = self.h(x)
        log_pi = F.log_softmax(self.pi(h), -1)
        sd = F.softplus(self.ls(h)) + 0.02
        comp = -0.5 * ((y - self.mu(h)) / sd) ** 2 - sd.log() - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(log_pi + comp, -1).mean()

model = MDN()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for it in range(1, 601):
    if it in (400, 520):
        for gr in optimizer.param_groups:
            gr["lr"] *= 0.3
    b = torch.randint(0, n_tr, (256,))
    optimizer.zero_grad()
    l = model.nll(x[b], y[b])
    l.backward()
    optimizer.step()
    if it % 100 == 0:
        with torch.no_grad():
            print(it, round(l.item(), 3), "held out", round(model.nll(x[n_tr:], y[n_tr:]).item(), 3))
# exact conditional density for comparison
with torch.no_grad():
    xe, ye = x[n_tr:] * 0.3 + 0.5, y[n_tr:] * 0.29 + 0.5
    lik = lambda yy: torch.exp(-0.5 * ((xe - yy - 0.3 * torch.sin(2 * math.pi * yy)) / 0.05) ** 2)
    grid = torch.linspace(0, 1, 2001)[None]
    dens = lik(ye) / lik(grid).mean(1, keepdim=True)
    print("best possible", round((-(dens * 0.29).log()).mean().item(), 3), "single gaussian", round(0.5 * math.log(2 * math.pi * math.e), 3))
