# class-incremental digits: {0,1,2,3} then {4,5,6} then {7,8,9}, half of every later batch comes from a replay memory
import torch
from torch import nn
from sklearn.datasets import load_digits

torch.manual_seed(9)
ds = load_digits()
X = torch.tensor(ds.data, dtype=torch.float32)
Y = torch.tensor(ds.target)
p = torch.randperm(len(X))
X, Y = X[p], Y[p]
X = (X - X[:1400].mean()) / X[:1400].std()
Xtr, Ytr, Xte, Yte = X[:1400], Y[:1400], X[1400:], Y[1400:]
STAGES = [(0, 1, 2, 3), (4, 5, 6), (7, 8, 9)]
PER_CLASS = 30

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
memory = torch.empty(0, dtype=torch.long)


def members(classes, y):
    return torch.isin(y, torch.tensor(classes)).nonzero().squeeze(1)


for stage, classes in enumerate(STAGES):
    new = members(classes, Ytr)
    for epoch in range(14):
        net.train()
        for idx in new[torch.randperm(len(new))].split(32):
            if len(memory):
                idx = torch.cat([idx, memory[torch.randint(0, len(memory), (len(idx),))]])
            loss = nn.functional.cross_entropy(net(Xtr[idx]), Ytr[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
    memory = torch.cat([memory] + [members((c,), Ytr)[:PER_CLASS] for c in classes])
    net.eval()
    with torch.no_grad():
        ok = net(Xte).argmax(1) == Yte
    seen = [members(s, Yte) for s in STAGES[:stage + 1]]
    print(f"after stage {stage}: loss {loss.item():.4f} accuracy per stage", [round(ok[s].float().mean().item(), 3) for s in seen], "memory", len(memory))
print("all classes", round(ok.float().mean().item(), 3))
