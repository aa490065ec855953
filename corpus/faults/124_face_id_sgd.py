import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(14)
LABEL_NUM, SIZE = 30, 20


def make_faces(per_id):
    g = torch.Generator().manual_seed(100)
    base = F.interpolate(torch.randn(LABEL_NUM, 1, 7, 7, generator=g), size=SIZE, mode='bilinear', align_corners=False)
    g2 = torch.Generator().manual_seed(per_id)
    faces, ids = [], []
    for k in range(LABEL_NUM):
        for _ in range(per_id):
            dx, dy = torch.randint(-1, 2, (2,), generator=g2).tolist()
            f = torch.roll(base[k], (dy, dx), dims=(1, 2))
            faces.append(f * (0.8 + 0.4 * torch.rand(1, generator=g2)) + 0.4 * torch.randn(1, SIZE, SIZE, generator=g2))
            ids.append(k)
    x = torch.stack(faces)
    return x / 0.8, torch.tensor(ids)


class Block(nn.Module):
    def __init__(self, planes):
        super(Block, self).__init__()
        self.conv1 = nn.Conv2d(planes, planes, 3, padding=1)
        self.prelu1 = nn.PReLU(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1)
        self.prelu2 = nn.PReLU(planes)

    def forward(self, x):
        return x + self.prelu2(self.conv2(self.prelu1(self.conv1(x))))


class SphereNet(nn.Module):
    def __init__(self, num_classes):
        super(SphereNet, self).__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.PReLU(16), Block(16))
        self.layer2 = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.PReLU(32), Block(32))
        self.fc = nn.Linear(32 * 25, 64)
        self.prelu = nn.PReLU(64)
        self.classifier = nn.Linear(64, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d) or isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        x = self.layer2(self.layer1(x))
        return self.classifier(self.prelu(self.fc(x.flatten(1))))


config = {'lr': 0.1, 'momentum': 0.9, 'weight_decay': 5e-4, 'batch_size': 32, 'epochs': 12}

xtr, ytr = make_faces(30)
xte, yte = make_faces(10)
loader = DataLoader(TensorDataset(xtr, ytr), batch_size=config['batch_size'], shuffle=True, drop_last=True)
net = SphereNet(LABEL_NUM)
optimizer = torch.optim.SGD(net.parameters(), lr=config['lr'], momentum=config['momentum'],
                            weight_decay=config['weight_decay'])
step = 0
for epoch in range(config['epochs']):
    net.train()
    for images, labels in loader:
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 28 == 0:
            print('Iter = %d, loss = %.4f' % (step, loss.item()))
    net.eval()
    with torch.no_grad():
        acc = (net(xte).argmax(1) == yte).float().mean().item()
    print('epoch %d  test accuracy %.3f' % (epoch, acc))
