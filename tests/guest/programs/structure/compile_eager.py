"""torch.compile with backend="eager" and graph breaks, a recompile for a new shape, and a disabled part.
slow

slow
"""
import torch
from torch import nn

torch.manual_seed(153)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 6), nn.Linear(6, 1)

    def forward(self, x):
        h = torch.relu(self.a(x))
        if h.sum().item() > 0:
            h = h * 1.01
        return self.b(self.noise(h))

    @torch._dynamo.disable
    def noise(self, h):
        return h + 0.01 * torch.randn(h.shape)


net = Net()
fast = torch.compile(net, backend="eager")
opt = torch.optim.SGD(net.parameters(), lr=0.05)
ls = []
for i in range(14):
    x = torch.randn(4 if i % 5 else 7, 3)
    l = (fast(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(ls[-1])
