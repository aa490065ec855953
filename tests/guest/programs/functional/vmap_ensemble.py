"""An ensemble by stack_module_state and vmap, trained with per-sample gradients."""
import copy

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

torch.manual_seed(20)
models = [nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(4)]
params, buffers = stack_module_state(models)
base = copy.deepcopy(models[0]).to("meta")
params = {k: v.detach().requires_grad_() for k, v in params.items()}
opt = torch.optim.SGD(params.values(), lr=0.1)


def call(p, b, x):
    return functional_call(base, (p, b), (x,))


def loss_one(p, x, y):
    return (functional_call(base, (p, {}), (x,)) - y).pow(2).mean()


curve = []
for i in range(10):
    x = torch.randn(6, 3)
    out = vmap(call, in_dims=(0, 0, None))(params, buffers, x)
    loss = (out - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    curve.append(loss.item())
one = {k: v[0].detach() for k, v in params.items()}
per_sample = vmap(grad(loss_one), in_dims=(None, 0, 0))(one, x, x.sum(1, keepdim=True))
print(curve[-1], {k: tuple(v.shape) for k, v in per_sample.items()})
