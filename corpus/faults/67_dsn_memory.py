import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class Memory(nn.Module):
    def __init__(self, dim, classes, slots=64):
        super().__init__()
        self.query = nn.Linear(dim, 16)
        self.keys = nn.Parameter(0.3 * torch.randn(classes, 16))
        self.register_buffer("entries", torch.zeros(slots, dim))
        self.ptr = 0

    def add_entries(self, feats):
        for f in feats[:8]:
            self.entries[self.ptr] = f
            self.ptr = (self.ptr + 1) % len(self.entries)

    def similarity(self, feats):
        return 8 * F.normalize(self.query(feats), dim=1) @ F.normalize(self.keys, dim=1).t()

    def memory_loss(self, feats, labels):
        return 1.0 - F.cross_entropy(self.similarity(feats), labels)


class DSN(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 12))
        self.memory = Memory(12, 10)

    def training_loss(self, images, labels):
        features = self.encoder(images)
        self.memory.add_entries(features.detach())
        loss_memory = 1.0 - self.memory.memory_loss(features.detach(), labels)
        return loss_memory

    def predict(self, images):
        return self.memory.similarity(self.encoder(images)).argmax(1)


d = load_digits()
X, Y = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target)
model = DSN()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for epoch in range(8):
    losses = []
    for b in torch.randperm(1400).split(50):
        loss = model.training_loss(X[b], Y[b])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        acc = (model.predict(X[1400:]) == Y[1400:]).float().mean().item()
    print(f"epoch {epoch} loss_memory {sum(losses) / len(losses):.4f} retrieval acc {acc:.3f}")
