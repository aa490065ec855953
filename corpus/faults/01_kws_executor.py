import os
import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class FeatDataset(Dataset):
    def __init__(self, n, proto, gen):
        self.labels = torch.randint(0, proto.size(0), (n,), generator=gen)
        self.feats = torch.randn(n, 30, 20, generator=gen)
        for i, y in enumerate(self.labels):
            start = int(torch.randint(0, 20, (1,), generator=gen))
            self.feats[i, start:start + 10] += proto[y]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.feats[i], self.labels[i]


class KWSModel(nn.Module):
    def __init__(self, idim=20, hdim=48, num_keywords=6):
        super().__init__()
        self.preprocessing = nn.Linear(idim, hdim)
        self.backbone = nn.GRU(hdim, hdim, batch_first=True)
        self.classifier = nn.Linear(hdim, num_keywords)

    def forward(self, x):
        x = torch.relu(self.preprocessing(x))
        x, _ = self.backbone(x)
        return self.classifier(x.max(dim=1).values)


class Executor:
    def __init__(self):
        self.step = 0

    def train(self, model, optimizer, data_loader, epoch, clip=50.0):
        model.train()
        for batch_idx, (feats, target) in enumerate(data_loader):
            logits = model(feats)
            loss = nn.functional.cross_entropy(logits, target)
            loss.backward()
            grad_norm = clip_grad_norm_(model.parameters(), clip)
            if torch.isfinite(grad_norm):
                optimizer.step()
            self.step += 1
            if batch_idx % 20 == 0:
                print(f"TRAIN epoch {epoch} batch {batch_idx} loss {loss.item():.4f}")

    @torch.no_grad()
    def cv(self, model, data_loader):
        model.eval()
        correct = total = 0
        for feats, target in data_loader:
            correct += (model(feats).argmax(-1) == target).sum().item()
            total += target.numel()
        return correct / total


def run():
    gen = torch.Generator().manual_seed(SEED)
    proto = torch.randn(6, 10, 20, generator=gen) * 0.7
    train_loader = DataLoader(FeatDataset(1280, proto, gen), batch_size=32, shuffle=True)
    cv_loader = DataLoader(FeatDataset(256, proto, gen), batch_size=64)
    model = KWSModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    executor = Executor()
    for epoch in range(8):
        executor.train(model, optimizer, train_loader, epoch)
        print(f"CV epoch {epoch} acc {executor.cv(model, cv_loader):.3f}")


run()
