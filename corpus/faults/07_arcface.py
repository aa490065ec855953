import math
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class ArcMarginProduct(nn.Module):
    def __init__(self, in_feature, out_feature, s=12.0, m=0.1):
        super().__init__()
        self.s = s
        self.weight = nn.Parameter(torch.empty(out_feature, in_feature))
        nn.init.xavier_uniform_(self.weight)
        self.cos_m, self.sin_m = math.cos(m), math.sin(m)

    def forward(self, x, label):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - cosine.pow(2)).clamp(min=1e-6))
        phi = cosine * self.cos_m - sine * self.sin_m
        one_hot = F.one_hot(label, cosine.size(1)).float()
        return self.s * (one_hot * phi + (1 - one_hot) * cosine)


class EmbeddingNet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.PReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(16, 32, 3, padding=1), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.BatchNorm1d(128))
        self.fc = nn.Linear(128, dim)

    def forward(self, x):
        return self.fc(self.body(x))


d = load_digits()
ds = TensorDataset(torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target))
train_ds, test_ds = random_split(ds, [1500, 297], torch.Generator().manual_seed(SEED))
trainloader = DataLoader(train_ds, batch_size=64, shuffle=True)
net, margin = EmbeddingNet(), ArcMarginProduct(8, 10)
criterion = nn.CrossEntropyLoss()
optimizer_ft = optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

for epoch in range(12):
    net.train()
    running = 0.0
    for img, label in trainloader:
        optimizer_ft.zero_grad()
        raw_logits = net(img)
        output = margin(raw_logits, label)
        total_loss = criterion(output, label)
        total_loss.backward()
        optimizer_ft.step()
        running += total_loss.item()
    net.eval()
    with torch.no_grad():
        x, y = zip(*test_ds)
        pred = F.linear(F.normalize(net(torch.stack(x))), F.normalize(margin.weight)).argmax(1)
        acc = (pred == torch.tensor(y)).float().mean().item()
    print(f"epoch {epoch} loss {running / len(trainloader):.3f} acc {acc:.3f}")
