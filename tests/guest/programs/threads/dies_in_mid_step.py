"""The first thread dies of an exception in the middle of a step; another takes the training up again."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(model.parameters(), 1e-3)
x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
losses, errors = [], []
threading.excepthook = lambda told: errors.append(repr(told.exc_value))


def work(steps, fails):
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    if fails == "forward":
        model(torch.randn(3, 5))
    elif fails == "backward":
        out = model(x)
        out.register_hook(lambda grad: 1 / 0)
        out.sum().backward()
    elif fails == "step":
        model[0].weight.grad = torch.zeros_like(model[0].weight)
        opt.param_groups[0]["betas"] = None
        opt.step()


for fails in ("forward", "backward", "step", ""):
    opt.param_groups[0]["betas"] = (0.9, 0.999)
    thread = threading.Thread(target=work, args=(40, fails))
    thread.start()
    thread.join()
del thread
threading.excepthook = threading.__excepthook__
print(repr(losses[-1]), [error.split("(")[0] for error in errors])
