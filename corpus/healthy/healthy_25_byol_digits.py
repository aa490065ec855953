"""BYOL on 8x8 digits: online net + predictor chase an EMA target; no negatives. kNN probe for progress."""
import copy, torch, torch.nn as nn, torch.nn.functional as F
from sklearn.datasets import load_digits

torch.manual_seed(1)
d = load_digits()
X = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16
Y = torch.tensor(d.target)
perm = torch.randperm(len(X)); X, Y = X[perm], Y[perm]
X = (X - X[:1400].mean()) / X[:1400].std()
Xtr, Ytr, Xte, Yte = X[:1400], Y[:1400], X[1400:], Y[1400:]


def augment(x):
    n = len(x)
    ang = (torch.rand(n) - 0.5) * 0.5
    sc = 1 + (torch.rand(n) - 0.5) * 0.3
    th = torch.zeros(n, 2, 3)
    th[:, 0, 0] = th[:, 1, 1] = ang.cos() * sc
    th[:, 0, 1], th[:, 1, 0] = -ang.sin() * sc, ang.sin() * sc
    th[:, :, 2] = (torch.rand(n, 2) - 0.5) * 0.4
    x = F.grid_sample(x, F.affine_grid(th, list(x.shape), align_corners=False), align_corners=False, padding_mode="border")
    return x + 0.1 * torch.randn_like(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 16, 64))
        self.proj = nn.Sequential(nn.Linear(64, 128, bias=False), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, x):
        return self.proj(self.backbone(x))


online = Net()
target = copy.deepcopy(online).requires_grad_(False)
predictor = nn.Sequential(nn.Linear(32, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
opt = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=1e-3)


def dist(p, z):
    return 2 - 2 * F.cosine_similarity(p, z, dim=-1).mean()


@torch.no_grad()
def probe():
    # 100 labelled images, queries are distorted test images
    online.eval()
    a, b = F.normalize(online.backbone(Xtr[:100]), dim=1), F.normalize(online.backbone(Xte_aug), dim=1)
    online.train()
    acc = (Ytr[(b @ a.T).argmax(1)] == Yte).float().mean().item()
    return acc, (a.std(0) * 8).mean().item()


Xte_aug = augment(Xte)
print("init", probe())
step = 0
for epoch in range(20):
    for idx in torch.randperm(1400).split(140):
        v1, v2 = augment(Xtr[idx]), augment(Xtr[idx])
        with torch.no_grad():
            t1, t2 = target(v1), target(v2)
        loss = (dist(predictor(online(v1)), t2) + dist(predictor(online(v2)), t1)) / 2
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for pt, po in zip(target.parameters(), online.parameters()):
                pt.lerp_(po, 0.02)
        step += 1
    if epoch % 5 == 4:
        print(step, f"loss {loss.item():.3f}", "knn acc %.3f, feature spread %.2f (1 = full)" % probe())
