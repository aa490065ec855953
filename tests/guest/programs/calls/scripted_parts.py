"""torch.jit.script of classes, functions and modules in every scope, with losses in them, and script_if_tracing."""
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(8)
FACTOR = 3


@torch.jit.script
def scaled(x: torch.Tensor, k: int = 2) -> torch.Tensor:
    return x * k


@torch.jit.script
class Pair:
    def __init__(self, a: torch.Tensor, b: torch.Tensor):
        self.a, self.b = a, b

    def loss(self) -> torch.Tensor:
        return torch.nn.functional.mse_loss(scaled(self.a), self.b)


def within(k: int):
    @torch.jit.script
    def inner(x: torch.Tensor) -> torch.Tensor:
        return scaled(x).sum()

    return torch.jit.script(Head(k)), inner


class Head(nn.Module):
    def __init__(self, k: int):
        super().__init__()
        self.k, self.l = k, nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(self.l(x), self.k)


@torch.jit.script_if_tracing
def looped(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    for _ in range(int(n)):
        x = x + torch.nn.functional.smooth_l1_loss(x, torch.zeros_like(x))
    return x


@torch.jit.script
def objective(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return Pair(x, y).loss() + torch.nn.functional.cross_entropy(x, y.argmax(1))


head, inner = within(FACTOR)
net = nn.Sequential(nn.Linear(3, 3), head)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
losses = []
for i in range(10):
    x = torch.randn(4, 3)
    loss = objective(net(x), x) + 0.01 * inner(x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if i == 4:
        late = torch.jit.script(Head(2))
        whole = torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
        traced = torch.jit.trace(lambda a, n: looped(a, n), (torch.ones(2), torch.tensor(2)))
    if i > 4:
        losses.append(late(x).sum().item() + whole(x).sum().item() + traced(torch.ones(2), torch.tensor(3)).sum().item())
print(losses[-1], late.code, len(str(traced.graph)) > 0)
