import copy
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class EMA:
    def __init__(self, model, decay):
        self.ema_model = copy.deepcopy(model)
        self.ema_model.requires_grad_(False)
        self.ema_model.eval()
        self.decay = decay

    def update(self, model):
        with torch.no_grad():
            for ema_p, p in zip(self.ema_model.parameters(), model.parameters()):
                ema_p.mul_(self.decay).add_(p, alpha=1 - self.decay)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature_extractor = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc(self.feature_extractor(x))


class Learner:
    def __init__(self, ema_decay=0.95):
        self.model = Classifier()
        self.ema = EMA(self.model, ema_decay)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def training_step(self, batch):
        x, y = batch
        self.model.train()
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.ema.update(self.model)
        return loss.item()

    @torch.no_grad()
    def validate(self, loader):
        hits = n = 0
        for x, y in loader:
            hits += (self.ema.ema_model(x).argmax(1) == y).sum().item()
            n += len(y)
        return hits / n


d = load_digits()
X, Y = torch.tensor(d.images, dtype=torch.float32)[:, None], torch.tensor(d.target)
X = (X - 4.9) / 6.0
train_dl = DataLoader(TensorDataset(X[:1400], Y[:1400]), batch_size=50, shuffle=True)
val_dl = DataLoader(TensorDataset(X[1400:], Y[1400:]), batch_size=100)
learner = Learner()
for epoch in range(8):
    losses = [learner.training_step(b) for b in train_dl]
    print(f"epoch {epoch}: train/loss {sum(losses) / len(losses):.4f} val/top1 {learner.validate(val_dl):.3f}")
