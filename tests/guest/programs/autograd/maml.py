"""First and second order MAML with functional_call, a module that is never called itself."""
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(4)
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
meta_opt = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for epoch in range(6):
    total = 0.0
    for task in range(3):
        phase = torch.rand(()) * 3.14
        x = torch.rand(10, 1) * 10 - 5
        y = torch.sin(x + phase)
        params = dict(model.named_parameters())
        inner = nn.functional.mse_loss(functional_call(model, params, (x,)), y)
        grads = torch.autograd.grad(inner, tuple(params.values()), create_graph=epoch % 2 == 0)
        fast = {k: p - 0.01 * g for (k, p), g in zip(params.items(), grads)}
        total = total + nn.functional.mse_loss(functional_call(model, fast, (x,)), y)
    meta_opt.zero_grad()
    total.backward()
    meta_opt.step()
    losses.append(total.item())
print(losses)
