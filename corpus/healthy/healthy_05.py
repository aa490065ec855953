import os
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
d = load_digits()
X, Y = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target)
loader = DataLoader(TensorDataset(X[:1440], Y[:1440]), batch_size=48, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
sched = torch.optim.lr_scheduler.CyclicLR(opt, base_lr=0.005, max_lr=0.1, step_size_up=15, cycle_momentum=False)
swa = AveragedModel(model)


def accuracy(m):
    m.eval()
    with torch.no_grad():
        a = (m(X[1440:]).argmax(1) == Y[1440:]).float().mean().item()
    m.train()
    return a


for epoch in range(10):
    total = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        total += loss.item()
    if epoch >= 5:
        swa.update_parameters(model)
    print(f"epoch {epoch} loss {total / len(loader):.4f} lr {sched.get_last_lr()[0]:.4f} acc {accuracy(model):.3f}")
update_bn(loader, swa)
print("swa acc", round(accuracy(swa), 3))
