"""torch.func transforms nested in each other inside of a training loop."""
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, hessian, jacfwd, jvp, vjp

torch.manual_seed(21)
net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
p = {k: v.detach().clone() for k, v in net.named_parameters()}
log = []
for i in range(6):
    x = torch.randn(5, 2)

    def f(p):
        return functional_call(net, p, (x,)).pow(2).mean()

    g, v = grad_and_value(f)(p)
    p = {k: w - 0.1 * g[k] for k, w in p.items()}
    out, tangent = jvp(lambda z: functional_call(net, p, (z,)), (x,), (torch.ones_like(x),))
    _, pull = vjp(lambda z: functional_call(net, p, (z,)), x)
    H = hessian(lambda z: functional_call(net, p, (z,)).sum())(x[0])
    J = jacfwd(lambda z: functional_call(net, p, (z,)))(x[0])
    log.append((v.item(), tangent.sum().item(), pull(out)[0].sum().item(), H.trace().item(), J.norm().item()))
print(log[-1])
