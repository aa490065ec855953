"""Waits until no other thread is left, by count and by name, in the midst of a training and after it."""

import threading
import time

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
seen = []


def alone():
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(30)
    while threading.active_count() > 1:
        time.sleep(0.01)
    seen.append([thread.name for thread in threading.enumerate()])


for step in range(20):
    helper = threading.Thread(target=time.sleep, args=(0.001,), name="helper")
    helper.start()
    opt.zero_grad()
    loss = net(torch.randn(8, 4)).square().mean()
    loss.backward()
    opt.step()
    if step % 5 == 0:
        alone()
alone()
print(repr(loss.item()), seen)
