"""A training of some hundred steps, with an evaluation now and then, a schedule and clipping.

slow
"""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.BatchNorm1d(12), nn.Dropout(0.1), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
x, y = torch.randn(64, 6), torch.randint(0, 3, (64,))
losses, accuracy = [], []
for step in range(300):
    pick = torch.randint(0, 64, (16,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
    if step % 50 == 49:
        model.eval()
        with torch.no_grad():
            accuracy.append((model(x).argmax(1) == y).float().mean().item())
        model.train()
print(losses[-1], accuracy)
