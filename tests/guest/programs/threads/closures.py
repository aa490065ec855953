"""Three threads run LBFGS with a closure, gradient clipping and a scheduler."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
losses = [[] for _ in range(3)]
models = []
for k in range(3):
    torch.manual_seed(k)
    models.append(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
x = torch.randn(40, 8)


def work(k):
    model = models[k]
    opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    plan = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)

    def closure():
        opt.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    for _ in range(20):
        losses[k].append(opt.step(closure).item())
        plan.step()


threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
del threads
print([repr(each[-1]) for each in losses])
