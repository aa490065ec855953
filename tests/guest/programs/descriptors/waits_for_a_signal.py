"""Blocks SIGUSR1 and SIGALRM in the middle of the training and waits for them itself, with sigwait and sigtimedwait."""

import os
import signal
import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []


def train(steps: int, pause: float = 0.0) -> None:
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        time.sleep(pause)


train(10, 0.02)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGALRM})
for _ in range(5):
    os.kill(os.getpid(), signal.SIGUSR1)
    train(5, 0.02)
    print(signal.sigwait({signal.SIGUSR1}).name)
signal.setitimer(signal.ITIMER_REAL, 0.3)
train(20, 0.02)
print(signal.Signals(signal.sigtimedwait({signal.SIGALRM}, 5).si_signo).name, signal.sigpending())
print("last loss", repr(losses[-1]))
