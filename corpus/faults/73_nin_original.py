from __future__ import print_function
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset


class NIN(nn.Module):
    def __init__(self):
        super(NIN, self).__init__()
        self.classifier = nn.Sequential(
            nn.Conv2d(1, 96, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(96, 80, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(80, 48, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Dropout(0.2),

            nn.Conv2d(48, 96, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(96, 96, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(96, 96, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(2),

            nn.Conv2d(96, 96, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(96, 96, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(96, 10, kernel_size=1),
            nn.AdaptiveAvgPool2d(1),
        )

    def forward(self, x):
        x = self.classifier(x)
        return x.view(x.size(0), 10)


def train(epoch, model, loader, optimizer, criterion):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        output = model(data)
        loss = criterion(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % 10 == 0:
            print('Train Epoch: {} [{}/{}]\tLoss: {:.6f}\tLR: {}'.format(
                epoch, batch_idx, len(loader), loss.item(), optimizer.param_groups[0]['lr']))


def test(model, loader, criterion):
    model.eval()
    test_loss, correct, n = 0.0, 0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            test_loss += criterion(output, target).item() * len(target)
            correct += (output.argmax(1) == target).sum().item()
            n += len(target)
    print('Test set: Average loss: {:.4f}, Accuracy: {}/{} ({:.2f}%)'.format(
        test_loss / n, correct, n, 100. * correct / n))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--lr', type=float, default=0.1)
    parser.add_argument('--epochs', type=int, default=6)
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    X, y = load_digits(return_X_y=True)
    X = ((X / 16.0 - 0.305) / 0.376).astype(np.float32).reshape(-1, 1, 8, 8)
    Xtr, Xte, ytr, yte = train_test_split(X, y, test_size=0.2, stratify=y, random_state=args.seed)
    trainloader = DataLoader(TensorDataset(torch.from_numpy(Xtr), torch.from_numpy(ytr)),
                             batch_size=32, shuffle=True)
    testloader = DataLoader(TensorDataset(torch.from_numpy(Xte), torch.from_numpy(yte)), batch_size=100)

    model = NIN()
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, nonlinearity='relu')
            m.bias.data.zero_()

    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    for epoch in range(1, args.epochs + 1):
        train(epoch, model, trainloader, optimizer, criterion)
        test(model, testloader, criterion)
