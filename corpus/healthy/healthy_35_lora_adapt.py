"""Pretrain an MLP classifier on digits, then adapt the frozen backbone to inverted, noisy digits with LoRA (B = 0 at the start)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.manual_seed(14)
raw = load_digits()
X = torch.tensor(raw.data, dtype=torch.float32) / 16
Y = torch.tensor(raw.target)
perm = torch.randperm(len(X)); X, Y = X[perm], Y[perm]
norm = lambda z: (z - z[:1300].mean()) / z[:1300].std()
src = norm(X)
tgt = norm((1 - X).view(-1, 8, 8).transpose(1, 2).reshape(-1, 64) + 0.1 * torch.randn_like(X))   # inverted and transposed
TR, TE = slice(0, 1300), slice(1300, None)


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features ** 0.5)
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.A.T @ self.B.T)


def fit(model, data, params, lr, epochs, tag):
    opt = torch.optim.Adam(params, lr=lr)
    for ep in range(epochs):
        model.train()
        for i in torch.randperm(1300).split(65):
            loss = F.cross_entropy(model(data[i]), Y[i])
            opt.zero_grad(); loss.backward(); opt.step()
        if ep % 4 == 3:
            model.eval()
            with torch.no_grad():
                acc = (model(data[TE]).argmax(1) == Y[TE]).float().mean().item()
            print(tag, ep, f"loss {loss.item():.3f} test acc {acc:.3f}")


pretrained_backbone = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
fit(pretrained_backbone, src, pretrained_backbone.parameters(), 1e-3, 8, "pretrain")
with torch.no_grad():
    print("zero shot on target", round((pretrained_backbone(tgt[TE]).argmax(1) == Y[TE]).float().mean().item(), 3))

for i in (0, 2, 4):
    pretrained_backbone[i] = LoRALinear(pretrained_backbone[i])
adapters = [p for p in pretrained_backbone.parameters() if p.requires_grad]
print("trainable", sum(p.numel() for p in adapters), "of", sum(p.numel() for p in pretrained_backbone.parameters()))
fit(pretrained_backbone, tgt, adapters, 3e-3, 16, "lora")
