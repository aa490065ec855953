"""Physics-informed net: u'' + 0.4 u' + 4 u = 0, u(0)=1, u'(0)=0 on [0, 4]. The only loss is the residual;
the initial conditions are built into the ansatz u = 1 + tanh(t)^2 N(t)."""
import torch
torch.manual_seed(0)
T, c, k = 4.0, 0.4, 4.0

class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = torch.nn.Linear(1, 40); self.l2 = torch.nn.Linear(40, 40); self.l3 = torch.nn.Linear(40, 1)
    def forward(self, t):
        s = 2 * t / T - 1
        h = torch.tanh(self.l1(3 * s))
        h = torch.tanh(self.l2(h))
        return 1 + torch.tanh(t) ** 2 * self.l3(h)

def derivs(f, t):
    u = f(t)
    du, = torch.autograd.grad(u.sum(), t, create_graph=True)
    d2u, = torch.autograd.grad(du.sum(), t, create_graph=True)
    return u, du, d2u

def exact(t):
    w = (k - c * c / 4) ** 0.5
    return torch.exp(-c * t / 2) * (torch.cos(w * t) + c / (2 * w) * torch.sin(w * t))

f = Field()
opt = torch.optim.Adam(f.parameters(), lr=5e-3)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.995)
grid = torch.linspace(0, T, 200)[:, None]
for it in range(600):
    t = (torch.rand(128, 1) * T).requires_grad_(True)
    u, du, d2u = derivs(f, t)
    loss = ((d2u + c * du + k * u) ** 2).mean() / k ** 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if it % 100 == 99:
        with torch.no_grad():
            err = (f(grid) - exact(grid)).abs().max().item()
        print(it + 1, f"residual {loss.item():.2e} max error {err:.4f}")
