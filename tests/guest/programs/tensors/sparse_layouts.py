"""Tensors of every sparse layout: parameters, buffers, inputs, outputs and gradients."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(202)
dense = torch.randn(6, 6) * (torch.rand(6, 6) > 0.5)


class Layout(nn.Module):
    """Multiplies by a matrix of one layout and hands the matrix on as an output."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        convert = {
            "coo": dense.to_sparse_coo,
            "csr": dense.to_sparse_csr,
            "csc": dense.to_sparse_csc,
            "bsr": lambda: dense.to_sparse_bsr((2, 2)),
            "bsc": lambda: dense.to_sparse_bsc((2, 2)),
        }[kind]
        self.trained = kind in ("coo", "csr")
        if self.trained:
            self.matrix = nn.Parameter(convert())
        else:
            self.register_buffer("matrix", convert())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.trained:
            return torch.sparse.mm(self.matrix, x.t()).t(), self.matrix
        return x @ self.matrix.to_dense(), self.matrix.detach()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 1)
        self.layouts = nn.ModuleList(Layout(kind) for kind in ("coo", "csr", "csc", "bsr", "bsc"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x.to_dense() if x.layout is not torch.strided else x)
        return self.last(sum(torch.tanh(layout(h)[0]) for layout in self.layouts))


net = Net()
opt = torch.optim.SGD([p for p in net.parameters() if p.layout is torch.strided], lr=0.002)
sparse = [p for p in net.parameters() if p.layout is not torch.strided]
losses: list[float] = []
kinds: list[str] = []
for step in range(30):
    x = torch.randn(4, 6)
    given = (x, x.to_sparse_coo(), x.to_sparse_csr())[step % 3]
    opt.zero_grad()
    for p in sparse:
        p.grad = None
    loss = (net(given) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step()
    kinds.append("/".join(str(p.grad.layout) if p.grad is not None else "none" for p in sparse))
    losses.append(loss.item())
ends = [p.detach().to_dense() for p in sparse]
print(repr(losses[-1]), kinds[-1])
del net, opt, sparse, p, given
