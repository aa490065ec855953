"""An evolution strategy: no gradients, weights perturbed in place under inference, a module used as a container."""
import torch
from torch import nn

torch.manual_seed(56)
net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)).requires_grad_(False)
vec = nn.utils.parameters_to_vector(net.parameters())
x = torch.randn(32, 3)
y = x.sum(1, keepdim=True)
fit = []
for g in range(30):
    noise = torch.randn(10, vec.numel())
    score = torch.empty(10)
    for k in range(10):
        nn.utils.vector_to_parameters(vec + 0.1 * noise[k], net.parameters())
        score[k] = -(net(x) - y).pow(2).mean()
    w = (score - score.mean()) / (score.std() + 1e-8)
    vec = vec + 0.02 * (w[:, None] * noise).mean(0)
    fit.append(score.max().item())
print(fit[0], fit[-1])
