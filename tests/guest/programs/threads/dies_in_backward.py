"""Of two threads that train, one dies of an exception that a custom function raises in its backward."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
died = []
threading.excepthook = lambda told: died.append((told.thread.name, type(told.exc_value).__name__))
models = []
for k in range(2):
    torch.manual_seed(k)
    models.append(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
x = torch.randn(20, 8)
losses = [[], []]


class Explode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, armed):
        ctx.armed = armed
        return value * 1

    @staticmethod
    def backward(ctx, grad):
        if ctx.armed:
            raise ArithmeticError("overflow")
        return grad, None


def work(k):
    opt = torch.optim.SGD(models[k].parameters(), 0.05)
    for step in range(60):
        opt.zero_grad()
        loss = Explode.apply(models[k](x), k == 0 and step == 30).pow(2).mean()
        loss.backward()
        opt.step()
        losses[k].append(loss.item())


threads = [threading.Thread(target=work, args=(k,), name=f"worker-{k}") for k in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
threading.excepthook = threading.__excepthook__
del threads
print(died, [len(each) for each in losses], repr(losses[1][-1]))
