"""An exit status that does not fit a byte."""
import torch

w = torch.nn.Parameter(torch.ones(2))
opt = torch.optim.SGD([w], lr=0.1)
for i in range(5):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
raise SystemExit(300)
