"""Hand-unrolled inception net for small grating patches."""
import math
import torch
import torch.nn as nn


class BNInceptionMini(nn.Module):
    def __init__(self, num_classes=4):
        super(BNInceptionMini, self).__init__()
        inplace = False
        self.conv1_7x7 = nn.Conv2d(1, 16, kernel_size=5, padding=2)
        self.conv1_7x7_bn = nn.BatchNorm2d(16)
        self.conv1_relu = nn.ReLU(inplace)
        self.inception_3a_1x1 = nn.Conv2d(16, 16, kernel_size=1)
        self.inception_3a_1x1_bn = nn.BatchNorm2d(16)
        self.inception_3a_relu_1x1 = nn.ReLU(inplace)
        self.inception_3a_3x3 = nn.Conv2d(16, 24, kernel_size=3, padding=1)
        self.inception_3a_3x3_bn = nn.BatchNorm2d(24)
        self.inception_3a_relu_3x3 = nn.ReLU(inplace)
        self.inception_3a_pool = nn.AvgPool2d(3, stride=1, padding=1)
        self.inception_3a_pool_proj = nn.Conv2d(16, 8, kernel_size=1)
        self.inception_3a_pool_proj_bn = nn.BatchNorm2d(8)
        self.inception_3a_relu_pool_proj = nn.ReLU(inplace)
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.last_linear = nn.Linear(48, num_classes)

    def features(self, input):
        conv1_out = self.conv1_7x7(input)
        conv1_bn_out = self.conv1_7x7_bn(conv1_out)
        conv1_relu_out = self.conv1_relu(conv1_bn_out)
        i3a_1x1_out = self.inception_3a_1x1(conv1_bn_out)
        i3a_1x1_bn_out = self.inception_3a_1x1_bn(i3a_1x1_out)
        i3a_relu_1x1_out = self.inception_3a_relu_1x1(i3a_1x1_bn_out)
        i3a_3x3_out = self.inception_3a_3x3(conv1_bn_out)
        i3a_3x3_bn_out = self.inception_3a_3x3_bn(i3a_3x3_out)
        i3a_relu_3x3_out = self.inception_3a_relu_3x3(i3a_3x3_bn_out)
        i3a_pool_out = self.inception_3a_pool(conv1_bn_out)
        i3a_pool_proj_out = self.inception_3a_pool_proj(i3a_pool_out)
        i3a_pool_proj_bn_out = self.inception_3a_pool_proj_bn(i3a_pool_proj_out)
        i3a_relu_pool_proj_out = self.inception_3a_relu_pool_proj(i3a_pool_proj_bn_out)
        return torch.cat([i3a_1x1_bn_out, i3a_3x3_bn_out, i3a_pool_proj_bn_out], 1)

    def forward(self, input):
        x = self.global_pool(self.features(input)).flatten(1)
        return self.last_linear(x)


def gratings(n, size=14):
    yy, xx = torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij")
    y = torch.randint(0, 4, (n,))
    theta = y.float() * math.pi / 4
    phase = torch.rand(n) * 2 * math.pi
    freq = 0.9 + 0.3 * torch.rand(n)
    arg = (torch.cos(theta)[:, None, None] * xx + torch.sin(theta)[:, None, None] * yy) * freq[:, None, None]
    img = torch.sin(arg + phase[:, None, None]) + 0.4 * torch.randn(n, size, size)
    return img.unsqueeze(1), y


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    xtr, ytr = gratings(1200)
    xva, yva = gratings(400)
    model = BNInceptionMini()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(8):
        model.train()
        total = 0.0
        for idx in torch.randperm(len(xtr)).split(40):
            optimizer.zero_grad()
            loss = criterion(model(xtr[idx]), ytr[idx])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(idx)
        print(f"epoch {epoch}: loss {total / len(xtr):.4f} val acc {accuracy(model, xva, yva):.3f}")


if __name__ == "__main__":
    main()
