import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, DataLoader


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, t):
        return (t - self.mean) / self.std


class ToTensor:
    def __call__(self, im):
        return torch.from_numpy(np.ascontiguousarray(im, dtype=np.float32)).div(16.0).unsqueeze(0)


class RandomShift:
    def __call__(self, t):
        return torch.roll(t, int(np.random.randint(-1, 2)), dims=-1)


class Compose:
    def __init__(self, ts):
        self.ts = ts

    def __call__(self, x):
        for t in self.ts:
            x = t(x)
        return x


class DigitFolder(Dataset):
    def __init__(self, images, labels, transform):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.images[i]), int(self.labels[i])


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.down(x))


class ResNet(nn.Module):
    def __init__(self, n=10):
        super().__init__()
        self.layer1 = BasicBlock(1, 16)
        self.layer2 = BasicBlock(16, 24, 2)
        self.fc = nn.Linear(24, n)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


def run_epoch(net, loader, optimizer=None):
    net.train(optimizer is not None)
    loss_sum = acc = n = 0
    for x, y in loader:
        with torch.set_grad_enabled(optimizer is not None):
            out = net(x)
            loss = F.cross_entropy(out, y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss_sum += loss.item() * len(y)
        acc += (out.argmax(1) == y).sum().item()
        n += len(y)
    return loss_sum / n, acc / n


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    digits = load_digits()
    order = np.random.permutation(len(digits.target))
    tr, te = order[:1400], order[1400:]
    mean, std = digits.images[tr].mean() / 16, digits.images[tr].std() / 16

    train_transform = Compose([ToTensor(), RandomShift(), Normalize(mean, std)])
    test_transform = Compose([ToTensor()])

    train_loader = DataLoader(DigitFolder(digits.images[tr], digits.target[tr], train_transform), 50, shuffle=True)
    test_loader = DataLoader(DigitFolder(digits.images[te], digits.target[te], test_transform), 100)
    net = ResNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    for epoch in range(8):
        tl, ta = run_epoch(net, train_loader, optimizer)
        vl, va = run_epoch(net, test_loader)
        scheduler.step()
        print(f"Epoch {epoch + 1} train loss {tl:.3f} acc {ta:.3f} test loss {vl:.3f} acc {va:.3f}")


if __name__ == "__main__":
    main()
