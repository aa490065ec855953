"""A session inside of another, over a part of the same model; the inner one halts the training.

slow
"""
import torch
from torch import nn

from neuraldbg import NeuralDbg, TrainingHalted

torch.manual_seed(18)
net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
done = 0
with NeuralDbg(net, probes=False) as outer:
    try:
        with NeuralDbg(net[1], halt=True, probes=False) as inner:
            for i in range(40):
                opt.zero_grad()
                loss = net(torch.randn(8, 3)).pow(2).mean() * (1e30 if i == 25 else 1.0)
                (loss * loss if i == 25 else loss).backward()
                opt.step()
                done += 1
    except TrainingHalted:
        print("halted at", done)
    for _ in range(5):
        opt.zero_grad()
        loss = net(torch.randn(8, 3)).pow(2).mean()
        loss.backward()
        opt.step()
print(outer.steps, loss.item())
