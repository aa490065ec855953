import argparse as m0
import decimal
import inspect
import json.decoder as m1
import os
import random as m2
import _pydecimal as m3
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
WINDOW = 48


class SnippetDataset(Dataset):
    def __init__(self, texts, n, gen):
        self.items = []
        for _ in range(n):
            y = int(torch.randint(0, len(texts), (1,), generator=gen))
            s = int(torch.randint(0, len(texts[y]) - WINDOW, (1,), generator=gen))
            ids = torch.tensor([min(ord(c), 127) for c in texts[y][s:s + WINDOW]])
            self.items.append((ids, y))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, idx):
        return self.items[idx]


class Net(nn.Module):
    def __init__(self, num_class, embed_dim=16):
        super(Net, self).__init__()
        self.embed = nn.Embedding(128, embed_dim)
        self.convs = [
            nn.Conv1d(embed_dim, 8, k) for k in (3, 4, 5)
        ]
        self.fc = nn.Linear(24, num_class)

    def forward(self, x):
        x = self.embed(x).transpose(1, 2)
        x = torch.cat([F.relu(conv(x)).max(dim=2)[0] for conv in self.convs], dim=1)
        return self.fc(x)


gen = torch.Generator().manual_seed(SEED)
texts = [inspect.getsource(m) for m in (m0, m1, m2, m3)]
train_iter = DataLoader(SnippetDataset(texts, 2400, gen), batch_size=32, shuffle=True)
test_iter = DataLoader(SnippetDataset(texts, 400, gen), batch_size=100)
net = Net(4)
print("parameters:", sum(p.numel() for p in net.parameters()))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(5):
    total = 0
    for x, y in train_iter:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        acc = sum((net(x).argmax(1) == y).sum().item() for x, y in test_iter) / 400
    print("epoch %d loss %.4f test acc %.3f" % (epoch, total / len(train_iter), acc))
