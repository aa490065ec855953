"""LBFGS with a closure that is evaluated many times in a step, strong Wolfe line search."""
import torch
from torch import nn

torch.manual_seed(40)
net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=8, line_search_fn="strong_wolfe")
x = torch.randn(40, 2)
y = (x[:, :1] * x[:, 1:]).tanh()
calls = 0


def closure():
    global calls
    calls += 1
    opt.zero_grad()
    loss = (net(x) - y).pow(2).mean()
    loss.backward()
    return loss


res = [opt.step(closure).item() for _ in range(8)]
print(calls, res)
