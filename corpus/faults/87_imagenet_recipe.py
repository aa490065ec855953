"""Recipe driven training: dataset params, loader params and train params are plain dicts."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class FolderDataset(Dataset):
    """class_0/*.png, class_1/*.png, ... in directory order (synthetic texture images)."""

    def __init__(self, per_class, n_classes=8, size=10, seed=0):
        proto_rng = np.random.RandomState(123)
        protos = proto_rng.randn(n_classes, 3, size, size)
        kernel = np.ones(3) / 3
        for axis in (2, 3):
            protos = np.apply_along_axis(lambda v: np.convolve(v, kernel, mode="same"), axis, protos)
        protos /= protos.std()
        rng = np.random.RandomState(seed)
        self.samples = []
        for c in range(n_classes):
            for _ in range(per_class):
                img = 0.6 * protos[c] + rng.randn(3, size, size)
                img = np.roll(img, rng.randint(-1, 2), axis=2)
                self.samples.append((img.astype(np.float32) / 1.15, c))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        img, c = self.samples[i]
        return torch.from_numpy(img), c


def imagenet_train(dataset_params, dataloader_params):
    return DataLoader(FolderDataset(**dataset_params), **dataloader_params)


imagenet_val = imagenet_train


class Trainer:
    def __init__(self, experiment_name):
        self.experiment_name = experiment_name

    def train(self, model, training_params, train_loader, valid_loader):
        opt_cls = getattr(torch.optim, training_params["optimizer"])
        optimizer = opt_cls(model.parameters(), lr=training_params["initial_lr"],
                            **training_params["optimizer_params"])
        criterion = nn.CrossEntropyLoss()
        for epoch in range(training_params["max_epochs"]):
            model.train()
            running = 0.0
            for images, labels in train_loader:
                optimizer.zero_grad()
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                running += loss.item()
            model.eval()
            right = count = 0
            with torch.no_grad():
                for images, labels in valid_loader:
                    right += (model(images).argmax(1) == labels).sum().item()
                    count += len(labels)
            print(f"[{self.experiment_name}] epoch {epoch} train {running / len(train_loader):.4f} "
                  f"valid acc {right / count:.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    dataloader_params = {"batch_size": 40}
    train_params = {
        "max_epochs": 8,
        "initial_lr": 0.02,
        "optimizer": "SGD",
        "optimizer_params": {"weight_decay": 1e-4, "momentum": 0.9, "nesterov": True},
    }
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 25, 64), nn.ReLU(), nn.Linear(64, 8),
    )
    train_loader = imagenet_train({"per_class": 200, "seed": 0}, dataloader_params)
    valid_loader = imagenet_val({"per_class": 40, "seed": 1}, {"batch_size": 100})
    Trainer("texture_resnet").train(net, train_params, train_loader, valid_loader)
