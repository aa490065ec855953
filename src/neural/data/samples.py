"""The values of this room: `Found` is what a source has, `Samples` what a network is trained on."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    Array = npt.NDArray[Any]


def counted(count: int, noun: str) -> str:
    """Return a number of things in words: "1 row", "2 rows"."""
    more = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else more}"


@dataclass(frozen=True)
class Found:
    """Hold arrays as a source has them."""

    inputs: Mapping[str, Array]
    """Arrays of the shape (samples, ...) by the names of `keyed`."""
    targets: Array | None
    """None if the source has none, as for an autoencoder."""
    source: str
    """The source, in words: "scikit-learn's digits"."""
    images: bool = False
    """True for pictures of the shape (samples, rows, columns, channels) with values from 0 to 1."""
    classes: tuple[str, ...] = ()
    """Names of the classes, where the targets are their numbers."""
    synthetic: bool = False
    notes: tuple[str, ...] = field(default=())
    """Decisions, a sentence each."""


@dataclass(frozen=True)
class Samples:
    """Hold the arrays that a network is trained on."""

    arrays: Mapping[str, Array]
    """`y` for the targets, and `x` for a single input, or each input by its name."""
    source: str
    """The source, in words."""
    synthetic: bool
    """True for made-up data."""
    notes: tuple[str, ...]
    """Changes and decisions by which they fit, a sentence each."""

    def save(self, path: Path) -> None:
        """Write the arrays as a file `.npz`."""
        # numpy.savez takes them as arguments, and fails at an input called `file`
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in self.arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
