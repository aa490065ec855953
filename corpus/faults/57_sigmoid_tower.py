import os
from collections import OrderedDict
import torch
import torch.nn as nn
from sklearn.datasets import load_wine

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
act = nn.Sigmoid


def build(sizes):
    layers = OrderedDict()
    for k, (i, o) in enumerate(zip(sizes[:-2], sizes[1:-1])):
        layers[f"dense{k}"] = nn.Linear(i, o)
        layers[f"act{k}"] = act()
    layers["logits"] = nn.Linear(sizes[-2], sizes[-1])
    return nn.Sequential(layers)


wine = load_wine()
X = torch.tensor(wine.data, dtype=torch.float32)
X = (X - X.mean(0)) / X.std(0)
y = torch.tensor(wine.target)
order = torch.randperm(len(X), generator=torch.Generator().manual_seed(SEED))
X, y = X[order], y[order]
net = build([13, 32, 32, 32, 32, 32, 3])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
history = []
for epoch in range(60):
    for b in torch.randperm(140).split(20):
        loss = nn.functional.cross_entropy(net(X[b]), y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss.item())
    if epoch % 10 == 9:
        with torch.no_grad():
            acc = (net(X[140:]).argmax(1) == y[140:]).float().mean().item()
        print(f"epoch {epoch + 1}: loss {sum(history[-7:]) / 7:.4f} test acc {acc:.3f}")
