"""Files `.npz`: arrays by name."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import numpy as np

from neural.data.samples import Found
from neural.errors import DataUnfit

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = "y"


def opened(path: Path) -> Found:
    """Return the arrays of a file: `y` and all others as inputs."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataUnfit(f"{path} cannot be read as .npz: {reason}") from None
    if TARGETS not in arrays or len(arrays) < 2:
        have = ", ".join(arrays) or "nothing"
        raise DataUnfit(f"{path} holds {have}: give the inputs as `x`, or each under its name, and the targets as `y`")
    for name, array in arrays.items():
        if array.dtype.kind not in "buif":
            raise DataUnfit(f"{path}: {name} holds {array.dtype}, and a network takes numbers")
        if not array.ndim:
            raise DataUnfit(f"{path}: {name} is a single number: the first axis is that of the samples")
    inputs = {name: array for name, array in arrays.items() if name != TARGETS}
    return Found(inputs, arrays[TARGETS], str(path))
