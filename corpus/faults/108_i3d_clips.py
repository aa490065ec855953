"""Small 3-D convolutional net on short clips of a digit that drifts in one of four directions."""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits


class Unit3D(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv3d(cin, cout, 3, padding=1, stride=stride, bias=False)
        self.bn = nn.BatchNorm3d(cout)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


class TinyI3D(nn.Module):
    def __init__(self, num_classes, dropout_keep_prob=0.9):
        super().__init__()
        self.stem = Unit3D(1, 8, stride=(1, 2, 2))
        self.mixed = Unit3D(8, 24, stride=(1, 2, 2))
        self.avg_pool = nn.AdaptiveAvgPool3d((2, 1, 1))
        self.dropout = nn.Dropout(dropout_keep_prob)
        self.logits = nn.Linear(48, num_classes)

    def forward(self, x):
        x = self.avg_pool(self.mixed(self.stem(x)))
        return self.logits(self.dropout(x.flatten(1)))


def clips(images, rng, frames=6, size=16):
    n = len(images)
    out = np.zeros((n, 1, frames, size, size), dtype=np.float32)
    y = rng.integers(0, 4, n)
    moves = [(0, 1), (0, -1), (1, 0), (-1, 0)]
    for i in range(n):
        r, c = rng.integers(3, 6, 2)
        for t in range(frames):
            rr, cc = np.clip([r + moves[y[i]][0] * t, c + moves[y[i]][1] * t], 0, size - 8)
            out[i, 0, t, rr:rr + 8, cc:cc + 8] = images[i] / 16.0
    return torch.from_numpy(out - 0.08), torch.from_numpy(y)


def main():
    torch.manual_seed(12)
    rng = np.random.default_rng(12)
    imgs = load_digits().images
    imgs = imgs[rng.permutation(len(imgs))]
    x, y = clips(imgs[:1200], rng)
    xv, yv = clips(imgs[1200:1600], rng)
    net = TinyI3D(4)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 6)
    for epoch in range(6):
        net.train()
        losses = []
        for idx in torch.randperm(len(x)).split(40):
            loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        sched.step()
        net.eval()
        with torch.no_grad():
            out = net(xv)
            print(f"epoch {epoch} train {np.mean(losses):.4f} val {nn.functional.cross_entropy(out, yv).item():.4f} acc {(out.argmax(1) == yv).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
