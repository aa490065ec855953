"""MAML on sinusoids: one inner step through torch.func, second order outer gradient."""
import torch, torch.nn as nn
from torch.func import functional_call, grad, vmap
torch.manual_seed(6)
net = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
INNER_LR, SHOTS, TASKS = 0.05, 10, 16

def mse(params, x, y):
    return ((functional_call(net, params, (x,)) - y) ** 2).mean()

def adapt(params, x, y, steps=1):
    for _ in range(steps):
        g = grad(mse)(params, x, y)
        params = {k: p - INNER_LR * g[k] for k, p in params.items()}
    return params

def tasks(n, shots):
    amp = torch.rand(n, 1, 1) * 1.0 + 0.5
    ph = torch.rand(n, 1, 1) * torch.pi
    f = lambda x: amp * torch.sin(2 * x + ph)
    xs, xq = torch.rand(n, shots, 1) * 3 - 1.5, torch.rand(n, 20, 1) * 3 - 1.5
    return xs, f(xs), xq, f(xq)

def task_loss(params, xs, ys, xq, yq):
    return mse(adapt(params, xs, ys), xq, yq)

held = tasks(200, SHOTS)
for it in range(500):
    params = dict(net.named_parameters())
    loss = vmap(task_loss, in_dims=(None, 0, 0, 0, 0))(params, *tasks(TASKS, SHOTS)).mean()
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    opt.step()
    if it % 100 == 99:
        p = {k: v.detach() for k, v in net.named_parameters()}
        before = vmap(mse, in_dims=(None, 0, 0))(p, held[2], held[3]).mean()
        after = vmap(task_loss, in_dims=(None, 0, 0, 0, 0))(p, *held).mean()
        five = vmap(lambda a, b, c, d: mse(adapt(p, a, b, 5), c, d))(*held).mean()
        print(it + 1, f"held-out tasks: before {before:.3f} after 1 step {after:.3f} after 5 steps {five:.3f}")
