import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(16)
np.random.seed(16)

digits = load_digits()
IMAGES = {'%05d.png' % i: img for i, img in enumerate(digits.images)}
TAGS = {0: 'loop', 1: 'stroke', 2: 'curve stroke', 3: 'curve', 4: 'corner stroke', 5: 'curve corner',
        6: 'loop curve', 7: 'corner', 8: 'loop curve stroke', 9: 'loop stroke'}
TABLE = [('%05d.png' % i, TAGS[t]) for i, t in enumerate(digits.target)]


class TableDataset(Dataset):
    """A table of image names and space separated tags, split to train and valid part."""

    def __init__(self, table, mode='train', split=0.8, shuffle=True, random_state=42):
        self.data = list(table)
        self.raw_labels = [row[1] for row in self.data]
        if shuffle:
            np.random.RandomState(random_state).shuffle(self.data)
        self.img_names = [row[0] for row in self.data]
        self.labels_unique = sorted(set(t for r in self.raw_labels for t in r.split(' ')))
        self.labels_lut = {t: i for i, t in enumerate(self.labels_unique)}
        frac = int(split * len(self.data))
        part = slice(None, frac) if mode == 'train' else slice(frac, None)
        self.img_names, self.raw_labels = self.img_names[part], self.raw_labels[part]

    def to_binary_encoding(self, labels):
        onehot = torch.zeros(len(self.labels_unique))
        for t in labels.split(' '):
            onehot[self.labels_lut[t]] = 1
        return onehot

    def __len__(self):
        return len(self.img_names)

    def __getitem__(self, idx):
        img = IMAGES[self.img_names[idx]] / 16.0
        return torch.tensor((img - 0.3) / 0.37, dtype=torch.float32)[None], self.to_binary_encoding(self.raw_labels[idx])


class MultiPlantPathology(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, num_classes))

    def forward(self, x):
        return self.head(self.features(x))


train_ds, valid_ds = TableDataset(TABLE, 'train'), TableDataset(TABLE, 'valid')
train_dl = DataLoader(train_ds, batch_size=32, shuffle=True)
valid_dl = DataLoader(valid_ds, batch_size=60)
model = MultiPlantPathology(len(train_ds.labels_unique))
loss_fn = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(5):
    model.train()
    losses = []
    for imgs, y in train_dl:
        loss = loss_fn(model(imgs), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    tp = fp = fn = 0
    with torch.no_grad():
        for imgs, y in valid_dl:
            p = (model(imgs) > 0).float()
            tp += (p * y).sum().item()
            fp += (p * (1 - y)).sum().item()
            fn += ((1 - p) * y).sum().item()
    print('epoch %d  train_loss %.4f  valid_f1 %.4f' % (epoch, np.mean(losses), 2 * tp / (2 * tp + fp + fn + 1e-9)))
