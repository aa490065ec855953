"""Packages of torch that call torch.jit.script while they are imported, in the middle of a training."""
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(9)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
found = []


def train():
    for i in range(8):
        loss = net(torch.randn(6, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i == 3 and torch.distributed.is_available():
            from torch.distributed import optim as spread
            import torch.distributed.optim.functional_sgd as functional

            found.append("DistributedOptimizer" in vars(spread))
            found.append(sorted(name for name in vars(functional) if name.startswith("_Functional")))
            step = torch.jit.script(functional._FunctionalSGD([net.weight.detach().clone()], lr=0.1))
            found.append(type(step).__name__)
    return loss


def main():
    return train()


loss = main()
print(loss.item(), found)
