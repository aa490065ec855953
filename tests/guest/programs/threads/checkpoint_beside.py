"""Two threads train models with activation checkpointing: forwards run again inside of backward passes."""

import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
losses = [[], []]
models = []
for k in range(2):
    torch.manual_seed(k)
    models.append(
        nn.ModuleList(
            [nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)), nn.Linear(16, 4)]
        )
    )
x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))


def run(m, x, reentrant):
    return m[2](checkpoint(m[1], m[0](x), use_reentrant=reentrant))


def work(k):
    opt = torch.optim.AdamW(models[k].parameters(), 1e-3)
    for step in range(60):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(run(models[k], x, bool(step % 2)), y)
        loss.backward()
        opt.step()
        losses[k].append(loss.item())


threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
del threads
print(repr(losses[0][-1]), repr(losses[1][-1]))
