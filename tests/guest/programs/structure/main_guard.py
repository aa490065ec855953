"""An argparse script with if __name__ == "__main__", main() that returns a status, and a dataclass config."""
import argparse
import sys
from dataclasses import asdict, dataclass

import torch
from torch import nn


@dataclass
class Config:
    lr: float = 0.1
    steps: int = 12


def main(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float, default=0.05)
    a = p.parse_args(argv)
    cfg = Config(lr=a.lr)
    torch.manual_seed(141)
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for _ in range(cfg.steps):
        l = net(torch.randn(4, 3)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
    print(asdict(cfg), l.item(), p.prog, __name__, __spec__)
    return 4


if __name__ == "__main__":
    sys.exit(main())
