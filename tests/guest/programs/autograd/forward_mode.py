"""Forward-mode differentiation with dual numbers, a forward gradient descent without any backward."""
import torch
import torch.autograd.forward_ad as fwAD
from torch import nn

torch.manual_seed(11)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.02)
vals = []
for i in range(20):
    x = torch.randn(8, 4)
    with torch.no_grad(), fwAD.dual_level():
        tangents = {n: torch.randn_like(p) for n, p in net.named_parameters()}
        duals = {n: fwAD.make_dual(p, tangents[n]) for n, p in net.named_parameters()}
        out = torch.func.functional_call(net, duals, (x,))
        l = (out - x.sum(1, keepdim=True)).pow(2).mean()
        primal, jvp = fwAD.unpack_dual(l)
        for n, p in net.named_parameters():
            p.grad = jvp * tangents[n]
    opt.step()
    vals.append(primal.item())
print(vals[0], vals[-1])
