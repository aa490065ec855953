"""Each thread keeps model and optimizer in a threading.local, made at its first step."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
local = threading.local()
x = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
making = threading.Lock()
results = {}


def mine(k):
    if not hasattr(local, "model"):
        with making:  # the generator is everybody's
            torch.manual_seed(k)
            local.model = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 1))
        local.opt = torch.optim.RMSprop(local.model.parameters(), 1e-3)
    return local.model, local.opt


def work(k):
    for _ in range(50):
        model, opt = mine(k)
        opt.zero_grad(set_to_none=bool(k % 2))
        loss = (model(x) - x.mean(1, keepdim=True)).abs().mean()
        loss.backward()
        opt.step()
    results[k] = loss.item()


threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
torch.manual_seed(3)  # whose seed was the last is chance
del local, making, threads
losses = [results[k] for k in sorted(results)]
print(repr(losses))
