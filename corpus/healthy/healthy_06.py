import os
import torch
import torch.nn as nn

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
t = torch.linspace(0, 1, 60)[:, None].requires_grad_(True)
k = 4.0


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, t):
        return self.f(t)


net = Field()
opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=10, history_size=20, line_search_fn="strong_wolfe")


def closure():
    opt.zero_grad()
    u = net(t)
    du = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
    residual = (du + k * u).pow(2).mean()
    boundary = (net(torch.zeros(1, 1)) - 1).pow(2).sum()
    loss = residual + 10 * boundary
    loss.backward()
    return loss


for step in range(40):
    loss = opt.step(closure)
    if step % 5 == 0 or step == 39:
        with torch.no_grad():
            err = (net(t) - torch.exp(-k * t)).abs().max().item()
        print(f"outer {step} loss {loss.item():.3e} max err {err:.4f}")
