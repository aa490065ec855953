"""Pre-train on digits 0-4, then gradual unfreezing with discriminative learning rates on digits 5-9."""
import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(1)
d = load_digits()
X = torch.tensor(d.images, dtype=torch.float32)[:, None] / 8 - 0.6
Y = torch.tensor(d.target)


def split(lo, hi):
    idx = torch.nonzero((Y >= lo) & (Y < hi)).squeeze(1)
    idx = idx[torch.randperm(len(idx))]
    k = int(0.75 * len(idx))
    return X[idx[:k]], Y[idx[:k]] - lo, X[idx[k:]], Y[idx[k:]] - lo


stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU())
pretrained_body = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 64), nn.ReLU())
head = nn.Linear(64, 5)
model = nn.Sequential(stem, pretrained_body, head)


def fit(opt, data, epochs, tag):
    x, y, xv, yv = data
    for ep in range(epochs):
        model.train()
        for i in torch.randperm(len(x)).split(32):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x[i]), y[i])
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            print(tag, ep, round(loss.item(), 4), round((model(xv).argmax(1) == yv).float().mean().item(), 4))


fit(torch.optim.Adam(model.parameters(), lr=1e-3), split(0, 5), 6, "source")
target = split(5, 10)
head = nn.Linear(64, 5)
model[2] = head
for group in (stem, pretrained_body):
    group.requires_grad_(False)
opt = torch.optim.Adam(head.parameters(), lr=2e-3)
fit(opt, target, 3, "head")
pretrained_body.requires_grad_(True)
opt.add_param_group({"params": pretrained_body.parameters(), "lr": 5e-4})
fit(opt, target, 4, "body")
stem.requires_grad_(True)
opt.add_param_group({"params": stem.parameters(), "lr": 2e-4})
fit(opt, target, 5, "all")
