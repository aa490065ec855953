import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


def mlp(width, depth):
    layers, d = [], 64
    for _ in range(depth):
        layers += [nn.Linear(d, width), nn.ReLU()]
        d = width
    return nn.Sequential(*layers, nn.Linear(d, 10))


class DistillationTrainer:
    def __init__(self, student, teacher, optimizer, gradient_accumulation_steps, temperature=2.0, alpha=0.5):
        self.student, self.teacher, self.optimizer = student, teacher, optimizer
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.T, self.alpha = temperature, alpha
        self.global_step = 0

    def compute_loss(self, x, y):
        with torch.no_grad():
            t = self.teacher(x)
        s = self.student(x)
        kd = F.kl_div(F.log_softmax(s / self.T, -1), F.softmax(t / self.T, -1), reduction="batchmean") * self.T ** 2
        return self.alpha * kd + (1 - self.alpha) * F.cross_entropy(s, y)

    def training_step(self, x, y, micro, total):
        loss = self.compute_loss(x, y)
        loss.backward()
        total += loss.item()
        if (micro + 1) % self.gradient_accumulation_steps == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.global_step += 1
            if self.global_step % 20 == 0:
                print({"step": self.global_step, "loss": round(total / self.gradient_accumulation_steps, 4)})
            total = 0.0
        return total

    def train(self, loader, epochs):
        total, micro = 0.0, 0
        for _ in range(epochs):
            for x, y in loader:
                total = self.training_step(x, y, micro, total)
                micro += 1


d = load_digits()
X = torch.tensor(d.data, dtype=torch.float32) / 16
y = torch.tensor(d.target)
perm = torch.randperm(len(X))
tr, te = perm[:1440], perm[1440:]

teacher = mlp(128, 2)
opt_t = torch.optim.Adam(teacher.parameters(), lr=2e-3)
for _ in range(6):
    for xb, yb in DataLoader(TensorDataset(X[tr], y[tr]), batch_size=64, shuffle=True):
        opt_t.zero_grad()
        F.cross_entropy(teacher(xb), yb).backward()
        opt_t.step()
teacher.eval()

student = mlp(48, 3)
optimizer = torch.optim.SGD(student.parameters(), lr=0.15, momentum=0.9)
trainer = DistillationTrainer(student, teacher, optimizer, gradient_accumulation_steps=12)
trainer.train(DataLoader(TensorDataset(X[tr], y[tr]), batch_size=8, shuffle=True), epochs=14)
with torch.no_grad():
    print("teacher acc", (teacher(X[te]).argmax(1) == y[te]).float().mean().item())
    print("student acc", (student(X[te]).argmax(1) == y[te]).float().mean().item())
