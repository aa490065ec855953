"""Tiny inflated 3D ConvNet: which way does the blob move?"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 3
np.random.seed(SEED)
torch.manual_seed(SEED)

MOVES = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1)]


def make_clip(label, frames=6, size=12):
    clip = np.random.randn(frames, size, size).astype(np.float32) * 0.3
    dy, dx = MOVES[label]
    y, x = np.random.randint(0, size, 2)
    for t in range(frames):
        for a in range(2):
            for b in range(2):
                clip[t, (y + a) % size, (x + b) % size] += 2.0
        y, x = y + dy, x + dx
    return clip


def make_set(n):
    labels = np.random.randint(0, len(MOVES), n)
    clips = np.stack([make_clip(l) for l in labels])
    clips = (clips - clips.mean()) / clips.std()
    return torch.from_numpy(clips).unsqueeze(1), torch.from_numpy(labels)


class Unit3D(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_shape, use_bn=True, activation=F.relu):
        super().__init__()
        self.activation = activation
        self.conv3d = nn.Conv3d(in_channels, out_channels, kernel_shape,
                                padding=kernel_shape // 2, bias=not use_bn)
        self.bn = nn.BatchNorm3d(out_channels) if use_bn else None

    def forward(self, x):
        x = self.conv3d(x)
        if self.bn is not None:
            x = self.bn(x)
        if self.activation is not None:
            x = self.activation(x)
        return x


class InceptionI3d(nn.Module):
    def __init__(self, num_classes=6, dropout_keep_prob=0.9):
        super().__init__()
        self.conv1 = Unit3D(1, 12, 3)
        self.pool1 = nn.MaxPool3d((1, 2, 2))
        self.conv2 = Unit3D(12, 24, 3)
        self.avg_pool = nn.AdaptiveAvgPool3d(1)
        self.dropout = nn.Dropout(dropout_keep_prob)
        self.logits = Unit3D(24, num_classes, 1, use_bn=False, activation=None)

    def forward(self, x):
        x = self.conv2(self.pool1(self.conv1(x)))
        x = self.logits(self.dropout(self.avg_pool(x)))
        return x.flatten(1)


def run():
    train_x, train_y = make_set(900)
    val_x, val_y = make_set(240)
    i3d = InceptionI3d(num_classes=len(MOVES))
    opt = torch.optim.Adam(i3d.parameters(), lr=2e-3)
    for epoch in range(12):
        i3d.train()
        order = torch.randperm(len(train_x))
        running, hits = 0.0, 0
        for chunk in order.split(30):
            out = i3d(train_x[chunk])
            loss = F.cross_entropy(out, train_y[chunk])
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item() * len(chunk)
            hits += (out.argmax(1) == train_y[chunk]).sum().item()
        i3d.eval()
        with torch.no_grad():
            out = i3d(val_x)
            vl = F.cross_entropy(out, val_y).item()
            va = (out.argmax(1) == val_y).float().mean().item()
        print("epoch %d train %.3f (%.3f) val %.3f (%.3f)" %
              (epoch, running / len(train_x), hits / len(train_x), vl, va))


run()
