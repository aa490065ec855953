"""Federated averaging on digits: 8 clients with skewed label shares, 2 local epochs a round, weighted average of the weights."""
import copy
import torch
from torch import nn
from sklearn.datasets import load_digits

torch.manual_seed(30)
D = load_digits()
perm = torch.randperm(len(D.data))
X = torch.tensor(D.data, dtype=torch.float32)[perm]
Y = torch.tensor(D.target)[perm]
X = (X - X[:1400].mean()) / X[:1400].std()
Xte, Yte = X[1400:], Y[1400:]

# Dirichlet split: every client sees all labels in different shares
CLIENTS = 8
share = torch.distributions.Dirichlet(torch.full((CLIENTS,), 1.0)).sample((10,))
owner = torch.distributions.Categorical(share[Y[:1400]]).sample()
parts = [(owner == c).nonzero().squeeze(1) for c in range(CLIENTS)]


def new_net():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def local_update(weights, idx, lr, epochs=2, bs=32):
    net = new_net()
    net.load_state_dict(weights)
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    for _ in range(epochs):
        for b in idx[torch.randperm(len(idx))].chunk(len(idx) // bs):
            loss = nn.functional.cross_entropy(net(X[b]), Y[b])
            opt.zero_grad()
            loss.backward()
            opt.step()
    return net.state_dict(), loss.item()


server = new_net()
print("client sizes", [len(p) for p in parts])
for rnd in range(7):
    current = copy.deepcopy(server.state_dict())
    results = [local_update(current, p, 0.2) for p in parts]
    total = sum(len(p) for p in parts)
    server.load_state_dict({k: sum(r[0][k] * (len(p) / total) for r, p in zip(results, parts)) for k in current})
    server.eval()
    with torch.no_grad():
        out = server(Xte)
        print(f"round {rnd} last local losses {sum(r[1] for r in results) / CLIENTS:.3f} global loss "
              f"{nn.functional.cross_entropy(out, Yte):.3f} accuracy {(out.argmax(1) == Yte).float().mean():.3f}")
