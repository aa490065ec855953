"""A session that is started and never stopped: the process ends while it runs.

stand-ins: left
"""
import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(12)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.01)
dbg = NeuralDbg(net, probes=False)
dbg.start()
losses = []
for _ in range(20):
    opt.zero_grad()
    loss = net(torch.randn(8, 3)).pow(2).mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(dbg.steps, losses[-1])
