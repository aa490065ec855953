"""Train a small ConvNet on handwritten digits, as it should be done.

The data are the 1,797 8x8 digits that come with scikit-learn; a fifth of them is held out for testing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8
BATCH_SIZE = 64
LEARNING_RATE = 0.05
MOMENTUM = 0.9


class ConvNet(nn.Module):
    """Two convolutions and a linear classifier, for images of shape (batch, 1, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=3, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.relu2 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(32 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.conv1(x))
        x = self.pool(self.relu2(self.conv2(x)))
        logits: Tensor = self.fc(x.flatten(1))
        return logits


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Return the training and the test set: images in [0, 1] of shape (1, 8, 8), and their labels."""
    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        digits.images, digits.target, test_size=0.2, stratify=digits.target, random_state=0
    )

    def dataset(images: object, labels: object) -> TensorDataset:
        return TensorDataset(torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 16.0, torch.tensor(labels))

    return dataset(x_train, y_train), dataset(x_test, y_test)


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[Tensor, ...]]) -> float:
    model.train()
    total = 0.0
    for images, labels in loader:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]]) -> float:
    model.eval()
    hits = [(model(images).argmax(dim=1) == labels).float() for images, labels in loader]
    return torch.cat(hits).mean().item()


def main() -> None:
    torch.manual_seed(0)
    train_set, test_set = load_data()
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=256)

    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    for epoch in range(EPOCHS):
        loss = train_epoch(model, optimizer, train_loader)
        print(f"epoch {epoch}  loss {loss:.4f}  test accuracy {accuracy(model, test_loader):.3f}")


if __name__ == "__main__":
    main()
