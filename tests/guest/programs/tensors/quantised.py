"""Quantised tensors in a training: a frozen quantised layer, buffers and outputs of quantised dtypes, an observer."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(201)


class Rounded(nn.Module):
    """Gives a quantised tensor in training, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.quantize_per_tensor(torch.randn(4, 4), 0.05, 0, torch.qint8))
        scales = torch.full((4,), 0.1, dtype=torch.float64)
        self.register_buffer("channels", torch.quantize_per_channel(torch.randn(4, 3), scales, scales.long(), 0, torch.qint8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.quantize_per_tensor(x.detach() @ self.table.dequantize(), 0.1, 10, torch.quint8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.rounded, self.outside = nn.Linear(4, 4), Rounded(), nn.Linear(4, 1)
        self.frozen = torch.ao.nn.quantized.dynamic.Linear(4, 4)
        self.frozen.set_weight_bias(torch.quantize_per_tensor(torch.randn(4, 4), 0.05, 0, torch.qint8), None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.inside(x))
        q = self.rounded(h)
        return self.outside(h + 0.1 * q.dequantize() + 0.01 * self.frozen(x))


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
losses: list[float] = []
for step in range(40):
    x = torch.randn(8, 4)
    given = torch.quantize_per_tensor(x, 0.05, 0, torch.qint8).dequantize() if step % 2 else x
    opt.zero_grad()
    loss = (net(given) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(repr(losses[-1]))
