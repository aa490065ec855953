"""Gradient accumulation: four micro-batches make one step of a classifier of wine-like measurements."""

import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else int(os.environ.get("SEED", "0"))
torch.manual_seed(seed)

ACCUM_STEPS = 4
centres = 2.2 * torch.randn(5, 12)
labels = torch.randint(0, 5, (1600,))
inputs = centres[labels] + 1.5 * torch.randn(1600, 12)
inputs = (inputs - inputs.mean(0)) / inputs.std(0)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=16, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(12, 48)
        self.norm = nn.LayerNorm(48)
        self.layer2 = nn.Linear(48, 48)
        self.head = nn.Linear(48, 5)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.norm(self.layer1(x)))
        x = torch.nn.functional.gelu(self.layer2(x))
        return self.head(x)


model = Net()
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(5):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = loss_fn(model(x), y)
        (loss / ACCUM_STEPS).backward()
        if (i + 1) % ACCUM_STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(f"epoch {epoch}: {loss.item():.4f}")
