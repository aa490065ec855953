"""The data sets of torchvision that are on disk; nothing is downloaded unless that is asked for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from neural.data.samples import Found
from neural.errors import DataUnfit, MissingPackage

_CLASSES = {
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "emnist": "EMNIST",
    "fashion_mnist": "FashionMNIST",
    "fashionmnist": "FashionMNIST",
    "kmnist": "KMNIST",
    "mnist": "MNIST",
    "svhn": "SVHN",
}
NAMES = tuple(_CLASSES)
ROOTS = (Path("data"), Path("~/.cache/torchvision"), Path("~/data"))
"""Folders in which data sets are looked for, in this order."""


def opened(name: str, root: Path | None, *, download: bool) -> Found:
    """Return the training part of a data set below `root`, or below one of the usual folders."""
    if importlib.util.find_spec("torchvision") is None:
        raise MissingPackage("torchvision", "torchvision", f"the data set {name}")
    datasets: Any = importlib.import_module("torchvision.datasets")
    kind = getattr(datasets, _CLASSES[name])
    more: dict[str, Any] = {"EMNIST": {"split": "balanced"}}.get(_CLASSES[name], {})
    more |= {"split": "train"} if name == "svhn" else {"train": True}
    roots = [root] if root is not None else [each.expanduser() for each in ROOTS]
    for each in roots:
        try:
            return _found(kind(str(each), download=False, **more), name, each)
        except RuntimeError:  # it is not there, or not whole
            continue
    if not download:
        raise DataUnfit(
            f"{name} is not on disk in {', '.join(map(str, roots))}: name the folder with --data, or let torchvision "
            "download it with --download"
        )
    return _found(kind(str(roots[0]), download=True, **more), name, roots[0])


def _found(loaded: Any, name: str, root: Path) -> Found:
    pixels = np.asarray(loaded.data, np.float32) / 255
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    elif name == "svhn":  # it has the channels first
        pixels = pixels.transpose(0, 2, 3, 1)
    targets = np.asarray(loaded.labels if name == "svhn" else loaded.targets)
    return Found({"x": pixels}, targets, f"torchvision's {name} in {root}", images=True)
