"""What DataParallel does, by hand: replicas that share hooks run in threads, their losses are added."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def replicate(m):
    r = m._replicate_for_data_parallel()
    for name, child in m._modules.items():
        r._modules[name] = replicate(child)
    for name, p in m._parameters.items():
        setattr(r, name, p.view_as(p)) if p is not None else None
    return r


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 64)
        self.b = nn.Linear(64, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Parallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        reps = [replicate(self.module) for _ in range(2)]
        outs = [None, None]

        def run(i, part):
            with torch.set_grad_enabled(True):
                outs[i] = reps[i](part)

        ts = [threading.Thread(target=run, args=(i, part)) for i, part in enumerate(x.chunk(2))]
        for t in ts:
            t.start()
        for t in ts:
            t.join()
        return torch.cat(outs)


model = Parallel(Net())
opt = torch.optim.SGD(model.parameters(), 0.1)
x = torch.randn(64, 16)
y = torch.randint(0, 4, (64,))
losses = []
for _ in range(100):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[-1])
