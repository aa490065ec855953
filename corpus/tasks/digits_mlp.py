"""Handwritten digits with a plain MLP: DataLoader, SGD with momentum, a step schedule, accuracy on a held-out part."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_loaders(batch_size):
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    images = (images - images.mean()) / images.std()
    perm = torch.randperm(len(images))
    images, labels = images[perm], labels[perm]
    train_set = TensorDataset(images[:1400], labels[:1400])
    test_set = TensorDataset(images[1400:], labels[1400:])
    train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, drop_last=True)
    return train_loader, DataLoader(test_set, batch_size=200)


def build_model(hidden=64):
    model = nn.Sequential(
        nn.Linear(64, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(hidden, 10),
    )
    return model


def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    running_loss = 0.0
    for images, labels in loader:
        outputs = model(images)
        loss = criterion(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    return running_loss / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = total = 0
    for images, labels in loader:
        predicted = model(images).argmax(dim=1)
        correct += (predicted == labels).sum().item()
        total += len(labels)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    train_loader, test_loader = get_loaders(batch_size=50)
    model = build_model()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    for epoch in range(args.epochs):
        train_loss = train_one_epoch(model, train_loader, criterion, optimizer)
        scheduler.step()
        accuracy = evaluate(model, test_loader)
        print(f"epoch {epoch} loss {train_loss:.4f} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
