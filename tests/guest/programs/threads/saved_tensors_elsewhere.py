"""One thread packs saved tensors with hooks of its own while another trains without."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
losses = [[], []]
models = []
for k in range(2):
    torch.manual_seed(k)
    models.append(nn.Sequential(nn.Linear(16, 32), nn.Sigmoid(), nn.Linear(32, 4)))
x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
packed = []


def pack(t):
    packed.append(t.numel())
    return t.clone()


def work(k):
    opt = torch.optim.SGD(models[k].parameters(), 0.1)
    for _ in range(80):
        opt.zero_grad()
        if k:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                loss = nn.functional.cross_entropy(models[k](x), y)
        else:
            loss = nn.functional.cross_entropy(models[k](x), y)
        loss.backward()
        opt.step()
        losses[k].append(loss.item())


threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
del threads
print(repr(losses[0][-1]), repr(losses[1][-1]), len(packed), sum(packed))
