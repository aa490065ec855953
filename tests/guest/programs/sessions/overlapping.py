"""Two sessions that overlap and end in the order in which they began, over two models in one loop."""
import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(14)
a, b = nn.Linear(3, 4), nn.Linear(4, 1)
oa, ob = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.Adam(b.parameters(), lr=0.01)
first, second = NeuralDbg(a, probes=False), NeuralDbg(b, probes=False)


def step():
    x = torch.randn(8, 3)
    oa.zero_grad()
    ob.zero_grad()
    loss = b(torch.relu(a(x))).pow(2).mean()
    loss.backward()
    oa.step()
    ob.step()
    return loss.item()


losses = [step() for _ in range(3)]
first.start()
losses += [step() for _ in range(5)]
second.start()
losses += [step() for _ in range(5)]
first.stop()
losses += [step() for _ in range(5)]
second.stop()
losses += [step() for _ in range(3)]
print(first.steps, second.steps, losses[-1])
