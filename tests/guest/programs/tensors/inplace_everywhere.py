"""In-place operations on views, outputs, leaves and buffers, relu_, out=, resize_as_, set_ and swap_tensors."""
import torch
from torch import nn

torch.manual_seed(128)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        h = self.a(x)
        h[:, :3].relu_()
        h += 0.1
        h[:, 3:] *= 2
        self.mean.lerp_(h.detach().mean(0), 0.1)
        h.sub_(self.mean.clone())
        return torch.nn.functional.leaky_relu_(self.b(h), 0.1)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
buf = torch.empty(0)
ls = []
for i in range(16):
    x = torch.randn(5, 4)
    torch.mul(x, 2, out=buf)
    l = net(buf.clone()).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    if i == 8:
        t = torch.randn(2, 6)
        net.b.weight.data.set_(t)
        torch.utils.swap_tensors(net.a.bias, nn.Parameter(torch.zeros(6)))
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
    ls.append(l.item())
print(ls[-1])
