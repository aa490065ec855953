import torch


def train(net, n):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(n):
        l = net(torch.randn(4, 3)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
    return l.item()
