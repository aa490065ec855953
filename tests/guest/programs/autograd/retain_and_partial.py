"""Several backward passes over one graph: retain_graph, inputs=, grad_outputs, a gradient added by hand."""
import torch
from torch import nn

torch.manual_seed(9)
enc, h1, h2 = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 3)
opt = torch.optim.Adagrad([*enc.parameters(), *h1.parameters(), *h2.parameters()], lr=0.05)
log = []
for i in range(12):
    x = torch.randn(5, 4)
    z = torch.tanh(enc(x))
    a, b = h1(z).pow(2).mean(), h2(z).abs().mean()
    opt.zero_grad()
    a.backward(retain_graph=True, inputs=list(h1.parameters()))
    b.backward(retain_graph=True)
    torch.autograd.backward([a, b], [torch.tensor(0.5), torch.tensor(-0.1)])
    enc.bias.grad = enc.bias.grad + 0.001
    opt.step()
    log.append((a.item(), b.item()))
print(log[-1])
