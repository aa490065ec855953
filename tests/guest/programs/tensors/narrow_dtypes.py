"""Parameters, buffers and outputs of dtypes that hardly anything computes with: float8, complex32, bool, uint16, int4."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(204)
EIGHT = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
WHOLE = [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16]


class Through(torch.autograd.Function):
    """Rounds to eight bits and hands the gradient on."""

    @staticmethod
    def forward(ctx, x, dtype):
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad.to(torch.float8_e5m2).to(grad.dtype), None


class Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.detach().to(self.dtype)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)
        self.casts = nn.ModuleList(Cast(dtype) for dtype in [*EIGHT, torch.complex32, torch.bool, torch.int16])
        for dtype in EIGHT:
            name = str(dtype).removeprefix("torch.")
            self.register_parameter(name, nn.Parameter(torch.rand(8, 4).to(dtype), requires_grad=False))
        for dtype in WHOLE:
            name = f"of_{dtype}".replace("torch.", "")
            self.register_parameter(name, nn.Parameter(torch.randint(0, 2, (8,)).to(dtype), requires_grad=False))
        self.half_complex = nn.Parameter(torch.zeros(3, dtype=torch.complex32), requires_grad=False)
        self.whole = nn.Parameter(torch.randn(8, dtype=torch.complex128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = Through.apply(torch.tanh(self.a(x)), torch.float8_e4m3fn)
        noise = [cast(h).float().real.mean() if cast.dtype.is_floating_point else 0.0 for cast in self.casts]
        odd = [cast(h) for cast in self.casts]
        mask = self.of_bool.to(h.dtype) + self.of_uint16.to(h.dtype)
        h = h * (1 + mask) + 0.01 * sum(noise) + 0.01 * self.whole.real.float() * len(odd)
        return self.b(h + 0.01 * self.float8_e4m3fn.float().sum(1))


net = Net()
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)
losses: list[float] = []
for step in range(40):
    x = torch.randn(8, 4)
    opt.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(repr(losses[-1]), [str(b.dtype) for b in net.parameters()])
