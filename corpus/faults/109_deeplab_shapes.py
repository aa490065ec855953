import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)
rng = np.random.default_rng(10)
CLASSES = 3


def scenes(n, size=24):
    img = 0.25 * rng.standard_normal((n, 1, size, size))
    lab = np.zeros((n, size, size), dtype=np.int64)
    yy, xx = np.mgrid[:size, :size]
    for i in range(n):
        for k in (1, 2):
            r, c = rng.integers(5, size - 5, 2)
            rad = rng.integers(3, 6)
            m = (np.abs(yy - r) + np.abs(xx - c) < rad) if k == 1 else ((yy - r) ** 2 + (xx - c) ** 2 < rad ** 2)
            img[i, 0][m] = (0.8 if k == 1 else -0.8) + 0.25 * rng.standard_normal(m.sum())
            lab[i][m] = k
    return torch.tensor(img, dtype=torch.float32), torch.from_numpy(lab)


class ConvBnReLU(nn.Sequential):
    def __init__(self, cin, cout, dilation=1):
        super().__init__()
        self.add_module("conv", nn.Conv2d(cin, cout, 3, padding=dilation, dilation=dilation, bias=False))
        self.add_module("bn", nn.BatchNorm2d(cout))
        self.add_module("relu", nn.ReLU())


class DeepLabMini(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = ConvBnReLU(1, 16)
        self.layer2 = ConvBnReLU(16, 24, dilation=2)
        self.layer3 = ConvBnReLU(24, 24, dilation=4)
        self.classifier = nn.Conv2d(24, CLASSES, 1)

    def forward(self, x):
        return self.classifier(self.layer3(self.layer2(self.layer1(x))))


def init_weights(module):
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.constant_(module.bias, 0)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.constant_(module.weight, 1)
        if module.bias is not None:
            nn.init.constant_(module.weight, 0)


def miou(pred, lab):
    ious = []
    for k in range(CLASSES):
        inter = ((pred == k) & (lab == k)).sum().item()
        ious.append(inter / max(1, ((pred == k) | (lab == k)).sum().item()))
    return float(np.mean(ious))


x, y = scenes(640)
xv, yv = scenes(120)
model = DeepLabMini()
model.apply(init_weights)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
max_iter, it = 160, 0
while it < max_iter:
    for idx in torch.randperm(len(x)).split(16):
        for g in optimizer.param_groups:
            g["lr"] = 0.05 * (1 - it / max_iter) ** 0.9
        model.train()
        loss = F.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        it += 1
        if it % 20 == 0:
            model.eval()
            with torch.no_grad():
                print(f"iter {it} loss {loss.item():.4f} mIoU {miou(model(xv).argmax(1), yv):.3f}")
        if it >= max_iter:
            break
