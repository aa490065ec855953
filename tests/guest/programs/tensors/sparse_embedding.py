"""Sparse gradients of an Embedding and an EmbeddingBag under SparseAdam and SGD."""
import torch
from torch import nn

torch.manual_seed(121)
e, b = nn.Embedding(50, 4, sparse=True), nn.EmbeddingBag(30, 4, mode="sum", sparse=True)
h = nn.Linear(4, 1)
o1, o2 = torch.optim.SparseAdam([*e.parameters(), *b.parameters()], lr=0.05), torch.optim.SGD(h.parameters(), lr=0.05)
ls = []
for i in range(20):
    t = torch.randint(0, 30, (6, 3))
    l = (h(e(t).mean(1) + b(t)) - t.float().mean(1, keepdim=True) / 30).pow(2).mean()
    o1.zero_grad(), o2.zero_grad()
    l.backward()
    o1.step(), o2.step()
    ls.append(l.item())
print(ls[-1], e.weight.grad.layout)
