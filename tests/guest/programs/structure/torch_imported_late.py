"""torch imported by name only inside of functions, by importlib, and with submodules first."""
import importlib
import sys

print("torch" in sys.modules)
nn = importlib.import_module("torch.nn")


def train():
    import torch as t

    t.manual_seed(140)
    net = nn.Linear(2, 1)
    opt = importlib.import_module("torch.optim").SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        l = net(t.randn(3, 2)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
    return net, l.item()


net, last = train()
print(last)
