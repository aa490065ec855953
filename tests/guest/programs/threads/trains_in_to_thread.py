"""A loop of asyncio trains in worker threads, step by step, and ticks meanwhile."""

import asyncio

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.AdamW(model.parameters(), 1e-2)
x, y = torch.randn(32, 8), torch.randint(0, 2, (32,))
losses = []


def step():
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


async def tick(stop):
    while not stop.is_set():
        await asyncio.sleep(0.001)


async def main():
    stop = asyncio.Event()
    ticking = asyncio.create_task(tick(stop))
    for _ in range(80):
        losses.append(await asyncio.to_thread(step))
    stop.set()
    await ticking


asyncio.run(main())
print(repr(losses[-1]))
