import os
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
random.seed(SEED)
torch.manual_seed(SEED)


class SiameseDigits(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.label_to_indices = {int(c): (y == c).nonzero().flatten().tolist() for c in y.unique()}

    def __getitem__(self, index):
        target = random.randint(0, 1)
        label = int(self.y[index])
        if target == 1:
            other = random.choice(self.label_to_indices[label])
        else:
            other = random.choice(self.label_to_indices[random.choice([c for c in range(10) if c != label])])
        return self.x[index], self.x[other], target

    def __len__(self):
        return len(self.x)


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convnet = nn.Sequential(nn.Conv2d(1, 12, 3), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 2), nn.PReLU())
        self.fc = nn.Sequential(nn.Linear(96, 48), nn.PReLU(), nn.Linear(48, 2))

    def forward(self, x):
        return self.fc(self.convnet(x).flatten(1))


class ContrastiveLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin
        self.eps = 1e-9

    def forward(self, output1, output2, target):
        squared = (output2 - output1).pow(2).sum(1)
        distances = squared.sqrt()
        losses = 0.5 * (target.float() * distances.pow(2) + (1 - target).float() * F.relu(self.margin - distances).pow(2))
        return losses.mean()


d = load_digits()
ds = SiameseDigits(torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target))
loader = DataLoader(ds, batch_size=32, shuffle=True)
model, loss_fn = EmbeddingNet(), ContrastiveLoss(1.)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8, gamma=0.1)
for epoch in range(6):
    losses = []
    for a, b, t in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(a), model(b), t)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f'Epoch: {epoch + 1}/6. Train set: Average loss: {sum(losses) / len(losses):.4f}')
