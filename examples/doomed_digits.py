"""Train a small ConvNet on handwritten digits with a learning rate that no network survives.

The data are the 1,797 8x8 digits that come with scikit-learn. The learning rate of 100 should have been 0.1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

STEPS = 60
BATCH_SIZE = 64
LEARNING_RATE = 100.0


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


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)

    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    for step in range(STEPS):
        batch = torch.randint(len(images), (BATCH_SIZE,))
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:3d}  loss {loss.item():.4g}")

    print(f"final loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
