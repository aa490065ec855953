import torch
import torch.nn as nn

torch.manual_seed(4)


def surface(n, size=16):
    img = torch.randn(n, 1, size, size) * 0.5
    mask = torch.zeros(n, 1, size, size)
    for k in range(n):
        length = int(torch.randint(5, 12, (1,)))
        r, c = torch.randint(0, size - 3, (1,)).item(), torch.randint(0, size - length, (1,)).item()
        if torch.rand(1) < 0.5:
            mask[k, 0, r:r + 3, c:c + length] = 1
        else:
            mask[k, 0, c:c + length, r:r + 3] = 1
    img = img - 1.2 * mask
    return img, mask


class SegmentNet(nn.Module):
    def __init__(self, init_weights=True):
        super(SegmentNet, self).__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.layer2 = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
                                    nn.MaxPool2d(2))
        self.layer3 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
        self.layer4 = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
        self.layer5 = nn.Sequential(nn.Conv2d(32, 1, 1), nn.ReLU(inplace=True))
        if init_weights:
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, nonlinearity='relu')
                    nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.layer5(self.layer4(self.layer3(self.layer2(self.layer1(x)))))


net = SegmentNet()
criterion_segment = torch.nn.BCEWithLogitsLoss()
optimizer_seg = torch.optim.Adam(net.parameters(), lr=0.002)
train_img, train_mask = surface(600)
test_img, test_mask = surface(120)
pool = nn.MaxPool2d(2)
train_mask, test_mask = pool(train_mask), pool(test_mask)

for epoch in range(10):
    net.train()
    total = 0.
    for b in torch.randperm(600).split(20):
        rst = net(train_img[b])
        loss_seg = criterion_segment(rst, train_mask[b])
        optimizer_seg.zero_grad()
        loss_seg.backward()
        optimizer_seg.step()
        total += loss_seg.item() * len(b) / 600
    net.eval()
    with torch.no_grad():
        p = torch.sigmoid(net(test_img)) > 0.5
        t = test_mask > 0.5
        iou = (p & t).sum().item() / max((p | t).sum().item(), 1)
    print("[Epoch %d/10] [Seg loss: %f] [IoU %.3f]" % (epoch + 1, total, iou))
