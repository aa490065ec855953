"""The data sets of torchvision that are on disk; nothing is downloaded unless that is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from neural.data.memory import within_memory
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
    kind = getattr(_datasets(name), _CLASSES[name])
    more: dict[str, Any] = {"split": "balanced"} if name == "emnist" else {}
    more |= {"split": "train"} if name == "svhn" else {"train": True}
    roots = [root] if root is not None else [Path(_expanded(each)) for each in ROOTS]
    for each in roots:
        try:
            return _found(kind(str(each), download=False, **more), name, each)
        except DataUnfit:
            raise
        except (RuntimeError, OSError):  # it is not there, or not whole
            continue
        except Exception as error:  # noqa: BLE001 (a file in its place that is another one)
            raise DataUnfit(f"torchvision cannot read {name} in {each}: {error}") from None
    if not download:
        raise DataUnfit(
            f"{name} is not on disk in {', '.join(map(str, roots))}: name the folder with --data, or let torchvision "
            "download it with --download"
        )
    try:
        return _found(kind(str(roots[0]), download=True, **more), name, roots[0])
    except DataUnfit:
        raise
    except Exception as error:  # noqa: BLE001 (no network, no room, another file than was expected)
        raise DataUnfit(f"torchvision could not download {name} to {roots[0]}: {error}") from None


def _expanded(path: Path) -> str:
    """Return a path with the user's folder for `~`, as it is if nobody knows that folder."""
    try:
        return str(path.expanduser())
    except RuntimeError:
        return str(path)


def _datasets(name: str) -> Any:
    try:
        return importlib.import_module("torchvision.datasets")
    except ImportError:
        raise MissingPackage("torchvision", "torchvision", f"the data set {name}") from None
    except Exception as error:  # noqa: BLE001 (one that was built for another torch fails with anything)
        raise DataUnfit(f"torchvision cannot be imported, for instance as it is for another torch: {error}") from None


def _found(loaded: Any, name: str, root: Path) -> Found:
    raw = np.asarray(loaded.data)
    within_memory(raw.size * 4, f"the images of {name}", "give a file .npz with fewer of them")
    pixels = raw.astype(np.float32) / 255
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    elif name == "svhn":  # it has the channels first
        pixels = pixels.transpose(0, 2, 3, 1)
    targets = np.asarray(loaded.labels if name == "svhn" else loaded.targets)
    classes = tuple(str(each) for each in getattr(loaded, "classes", ()))
    notes = ("its training part is taken, and values are from 0 to 1",)
    return Found({"x": pixels}, targets, f"torchvision's {name} in {root}", True, classes, notes=notes)
