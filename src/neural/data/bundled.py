"""The data sets that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from neural.data.samples import Found
from neural.errors import MissingPackage

NAMES = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")
_MEASURED = ("breast_cancer", "iris", "wine")
"""Sets of features in units of their own, which are scaled."""
_ORDER = 0


def opened(name: str) -> Found:
    """Return a data set by its name, in an order by chance that is always the same: many begin with one class."""
    try:
        from sklearn import datasets  # noqa: PLC0415 (of the extra)
    except ImportError:
        raise MissingPackage("scikit-learn") from None
    loaded = getattr(datasets, f"load_{name}")()
    order = np.random.default_rng(_ORDER).permutation(len(loaded.target))
    targets = loaded.target[order]
    notes = ["samples are in an order by chance, which is the same each time"]
    if name == "digits":
        pixels = (loaded.images[order] / 16).astype(np.float32)[..., None]
        return Found({"x": pixels}, targets, "scikit-learn's digits", True, notes=tuple(notes))
    features = loaded.data[order].astype(np.float64)
    if name in _MEASURED or name == "linnerud":
        features = (features - features.mean(axis=0)) / features.std(axis=0)
        notes.append("each feature has a mean of 0 and a deviation of 1")
    if name in ("diabetes", "linnerud"):
        targets = (targets - targets.mean(axis=0)) / targets.std(axis=0)
        notes.append("the targets have a mean of 0 and a deviation of 1")
    classes = tuple(str(each) for each in loaded.target_names) if name in _MEASURED else ()
    return Found({"x": features}, targets, f"scikit-learn's {name}", classes=classes, notes=tuple(notes))
