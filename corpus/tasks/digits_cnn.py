"""A small ConvNet with batch norm on handwritten digits, with a Trainer class as many projects have one."""

import os
import random
import sys

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, Dataset


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class DigitDataset(Dataset):
    def __init__(self, images, labels, augment=False):
        self.images = images
        self.labels = labels
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i].astype(np.float32) / 16.0
        image = (image - 0.305) / 0.376
        if self.augment:
            image = image + np.random.normal(0, 0.05, image.shape).astype(np.float32)
        return torch.from_numpy(image)[None], int(self.labels[i])


class ConvBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel_size=3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(c_out)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class SmallConvNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.block1 = ConvBlock(1, 12)
        self.block2 = ConvBlock(12, 24)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.25)
        self.classifier = nn.Linear(24 * 4 * 4, num_classes)

    def forward(self, x):
        x = self.block1(x)
        x = self.pool(self.block2(x))
        x = torch.flatten(x, 1)
        x = self.dropout(x)
        return self.classifier(x)


class Trainer:
    def __init__(self, model, train_loader, val_loader, epochs=6, lr=2e-3):
        self.model = model
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.epochs = epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs)

    def train_epoch(self):
        self.model.train()
        losses = []
        for images, labels in self.train_loader:
            self.optimizer.zero_grad()
            logits = self.model(images)
            loss = F.cross_entropy(logits, labels)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    def validate(self):
        self.model.eval()
        hits = 0
        with torch.no_grad():
            for images, labels in self.val_loader:
                hits += (self.model(images).argmax(1) == labels).sum().item()
        return hits / len(self.val_loader.dataset)

    def fit(self):
        for epoch in range(self.epochs):
            train_loss = self.train_epoch()
            self.scheduler.step()
            val_acc = self.validate()
            print(f"[{epoch + 1}/{self.epochs}] loss={train_loss:.4f} val_acc={val_acc:.4f}")


if __name__ == "__main__":
    set_seed(int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else int(os.environ.get("SEED", 0)))
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8)
    x_train, x_val, y_train, y_val = train_test_split(images, labels, test_size=0.3)
    train_set = DigitDataset(x_train, y_train, augment=True)
    val_set = DigitDataset(x_val, y_val)
    train_loader = DataLoader(train_set, batch_size=48, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=180)
    net = SmallConvNet()
    trainer = Trainer(net, train_loader, val_loader)
    trainer.fit()
