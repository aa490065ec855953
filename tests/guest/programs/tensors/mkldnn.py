"""Tensors in the layout of oneDNN between the layers of a model that is trained."""

import torch
from torch import nn
from torch.utils import mkldnn

torch.manual_seed(203)


class Blocked(nn.Module):
    """Gives an opaque tensor, which has no strides and no storage."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to_mkldnn()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.block, self.relu, self.head = nn.Conv2d(1, 4, 3), Blocked(), nn.ReLU(), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.block(self.conv(x))
        h = self.relu(h)
        return self.head(h.to_dense().flatten(1))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
losses: list[float] = []
opaque = mkldnn.to_mkldnn(nn.Sequential(nn.Linear(4, 4), nn.ReLU())).eval()
for step in range(30):
    x = torch.randn(4, 1, 4, 4)
    with torch.no_grad():
        teacher = opaque(x.mean(2).squeeze(1).to_mkldnn()).to_dense().sum(1, keepdim=True)
    opt.zero_grad()
    loss = (net(x) - teacher).square().mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
del opaque
print(repr(losses[-1]))
