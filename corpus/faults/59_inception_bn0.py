import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class BasicConv2d(nn.Module):
    def __init__(self, in_planes, out_planes, kernel_size, stride=1, padding=0):
        super(BasicConv2d, self).__init__()
        self.conv = nn.Conv2d(in_planes, out_planes, kernel_size, stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(out_planes, eps=0.001, momentum=0, affine=True)
        self.relu = nn.ReLU(inplace=False)

    def forward(self, x):
        return self.relu(self.bn(self.conv(x)))


class Mixed(nn.Module):
    def __init__(self):
        super(Mixed, self).__init__()
        self.branch0 = BasicConv2d(16, 12, 1)
        self.branch1 = nn.Sequential(BasicConv2d(16, 8, 1), BasicConv2d(8, 12, 3, padding=1))
        self.branch2 = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), BasicConv2d(16, 8, 1))

    def forward(self, x):
        return torch.cat((self.branch0(x), self.branch1(x), self.branch2(x)), 1)


class InceptionLike(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(BasicConv2d(1, 16, 3, padding=1), Mixed(), nn.MaxPool2d(2), BasicConv2d(32, 32, 3, padding=1))
        self.last_linear = nn.Linear(32 * 4, num_classes)

    def forward(self, x):
        return self.last_linear(F.adaptive_avg_pool2d(self.features(x), 2).flatten(1))


d = load_digits()
x, y = torch.tensor(d.images, dtype=torch.float32)[:, None], torch.tensor(d.target)
train = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=28, shuffle=True)
val = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=100)
model = InceptionLike()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(5):
    model.train()
    hit = tot = 0
    for xb, yb in train:
        opt.zero_grad()
        out = model(xb)
        loss = F.cross_entropy(out, yb)
        loss.backward()
        opt.step()
        hit += (out.argmax(1) == yb).sum().item()
        tot += loss.item()
    model.eval()
    with torch.no_grad():
        v = sum((model(a).argmax(1) == b).sum().item() for a, b in val) / 397
    print(f"epoch {epoch} train loss {tot / len(train):.4f} acc {hit / 1400:.3f} | val acc {v:.3f}")
