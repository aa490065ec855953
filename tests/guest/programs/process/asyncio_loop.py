"""An asyncio program: training steps as coroutines, cancelled tasks, an async generator of batches."""
import asyncio

import torch
from torch import nn

torch.manual_seed(109)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
log = []


async def batches(n):
    for _ in range(n):
        await asyncio.sleep(0)
        yield torch.randn(4, 3)


async def train():
    async for x in batches(15):
        l = (net(x) - x[:, :1]).pow(2).mean()
        opt.zero_grad()
        l.backward()
        await asyncio.sleep(0)
        opt.step()
        log.append(l.item())


async def ticker():
    n = 0
    try:
        while True:
            n += 1
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        log.append("cancelled")
        raise


async def main():
    t = asyncio.create_task(ticker())
    await train()
    t.cancel()
    await asyncio.gather(t, return_exceptions=True)


asyncio.run(main())
print(log[-2:])
