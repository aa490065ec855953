import os
import torch
from torch import nn
from sklearn.datasets import load_wine
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class MMDL(nn.Module):
    def __init__(self, encoders, fusion, head):
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.fuse = fusion
        self.head = head

    def forward(self, inputs):
        outs = [enc(x) for enc, x in zip(self.encoders, inputs)]
        return self.head(self.fuse(torch.cat(outs, dim=1)))


def encoder(indim):
    return nn.Sequential(nn.Linear(indim, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.4))


def train(model, train_dataloader, valid_dataloader, total_epochs, optimtype=torch.optim.RMSprop, lr=1e-3):
    op = optimtype(model.parameters(), lr=lr)
    criterion = nn.CrossEntropyLoss()
    bestacc = 0
    for epoch in range(total_epochs):
        totalloss, totals = 0.0, 0
        model.train()
        for a, b, y in train_dataloader:
            op.zero_grad()
            loss = criterion(model([a, b]), y)
            totalloss += loss.item() * len(y)
            totals += len(y)
            loss.backward()
            op.step()
        print("Epoch " + str(epoch) + " train loss: " + str(round(totalloss / totals, 4)))
        if True:
            model.eval()
            with torch.no_grad():
                model.train()
                total, right, n = 0.0, 0, 0
                for a, b, y in valid_dataloader:
                    out = model([a, b])
                    total += criterion(out, y).item() * len(y)
                    right += (out.argmax(1) == y).sum().item()
                    n += len(y)
            bestacc = max(bestacc, right / n)
            print("  valid loss: %.4f acc: %.3f" % (total / n, right / n))
    print("best", bestacc)


d = load_wine()
x = torch.tensor(d.data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
y = torch.tensor(d.target)
p = torch.randperm(len(x), generator=torch.Generator().manual_seed(SEED))
x, y = x[p], y[p]
make = lambda s, bs, sh: DataLoader(TensorDataset(x[s, :6], x[s, 6:], y[s]), batch_size=bs, shuffle=sh)
model = MMDL([encoder(6), encoder(7)],
             nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()), nn.Linear(32, 3))
train(model, make(slice(0, 128), 16, True), make(slice(128, 178), 10, False), 25)
