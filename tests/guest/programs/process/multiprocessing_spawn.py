"""A spawned worker that imports this very file as __mp_main__ and gets the model by pickle.
slow
timeout: 120"""
import multiprocessing as mp

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 1)

    def forward(self, x):
        return torch.tanh(self.l(x))


def work(net, q):
    q.put(net(torch.ones(1, 3)).item())


if __name__ == "__main__":
    torch.manual_seed(113)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(10):
        l = net(torch.randn(4, 3)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
    ctx = mp.get_context("spawn")
    q = ctx.Queue()
    p = ctx.Process(target=work, args=(net, q))
    p.start()
    got = q.get()
    p.join()
    code = p.exitcode
    del p, q
    print(got, code)
