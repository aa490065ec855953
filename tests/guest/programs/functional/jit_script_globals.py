"""torch.jit.script of functions that name other functions and classes of this very file."""
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
SCALE = 3


@torch.jit.script
def squash(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())


def helper(x: torch.Tensor, k: int) -> torch.Tensor:
    return squash(x) * k


@torch.jit.script
class Box:
    def __init__(self, v: torch.Tensor):
        self.v = v

    def get(self) -> torch.Tensor:
        return helper(self.v, 2)


@torch.jit.script
def use(x: torch.Tensor) -> torch.Tensor:
    return Box(x).get()


torch.manual_seed(25)
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(10):
    loss = use(net(torch.randn(4, 3))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), squash.graph is not None)
