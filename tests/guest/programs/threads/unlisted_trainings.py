"""Two trainings in threads that threading does not list, as those of Qt and of C++ are not."""

import _thread
import time

import torch
from torch import nn

torch.set_num_threads(1)
results: dict[int, list[float]] = {}
done: list[int] = []


def train(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(8, 4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    mine = results[seed] = []
    for step in range(120):
        x = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :4]).square().mean()
        loss.backward()
        optimizer.step()
        mine.append(loss.item())
    done.append(seed)


for seed in (1, 2):
    _thread.start_new_thread(train, (seed,))
while len(done) < 2:
    time.sleep(0.01)
print(repr(results[1][-1]), repr(results[2][-1]))
del done  # who is done first differs
