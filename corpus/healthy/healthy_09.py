import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
d = load_breast_cancer()
X = torch.tensor(d.data, dtype=torch.float32)
X = (X - X.mean(0)) / X.std(0)
Y = 1 - torch.tensor(d.target)
g = torch.Generator().manual_seed(SEED)
perm = torch.randperm(len(X), generator=g)
keep = [i for i in perm.tolist() if Y[i] == 0 or torch.rand(1, generator=g) < 0.4]
X, Y = X[keep], Y[keep]
n = int(0.8 * len(X))
weights = torch.where(Y[:n] == 1, 2.0, 1.0)
loader = DataLoader(TensorDataset(X[:n], Y[:n]), batch_size=8, sampler=WeightedRandomSampler(weights, n, generator=g))


def focal(logits, y, gamma=2.0):
    lp = F.log_softmax(logits, 1).gather(1, y[:, None]).squeeze(1)
    return (-(1 - lp.exp()) ** gamma * lp).mean()


teacher = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2))
t_opt = torch.optim.AdamW(teacher.parameters(), lr=1e-3)
for epoch in range(6):
    for x, y in loader:
        t_opt.zero_grad()
        focal(teacher(x), y).backward()
        t_opt.step()
teacher.eval().requires_grad_(False)

student = nn.ModuleDict({"embed": nn.Linear(30, 8), "head": nn.Linear(8, 2)})
opt_e = torch.optim.SGD(student["embed"].parameters(), lr=0.1, momentum=0.9)
opt_h = torch.optim.Adam(student["head"].parameters(), lr=5e-3)
accum, step = 2, 0
for epoch in range(14):
    tot = 0.0
    for k, (x, y) in enumerate(loader):
        out = student["head"](torch.tanh(student["embed"](x)))
        kd = F.kl_div(F.log_softmax(out / 2, 1), F.softmax(teacher(x) / 2, 1), reduction="batchmean") * 4
        loss = (0.7 * kd + 0.3 * focal(out, y)) / accum
        loss.backward()
        tot += loss.item() * accum
        if (k + 1) % accum == 0:
            opt_e.step()
            opt_h.step()
            opt_e.zero_grad()
            opt_h.zero_grad()
            step += 1
    with torch.no_grad():
        p = student["head"](torch.tanh(student["embed"](X[n:]))).argmax(1)
        rec = (p[Y[n:] == 1] == 1).float().mean().item()
    if epoch % 3 == 1:
        print(f"epoch {epoch} step {step} loss {tot / len(loader):.4f} acc {(p == Y[n:]).float().mean():.3f} recall {rec:.3f}")
