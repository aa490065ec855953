"""Files `.npz`: arrays by name."""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from neural.data.input_names import TARGETS, keyed
from neural.data.memory import within_memory
from neural.data.samples import Found
from neural.errors import DataUnfit

if TYPE_CHECKING:
    from pathlib import Path

    from neural.data.samples import Array
    from neural.plan import Plan

_FEWER = "give a file with fewer samples"


def opened(path: Path, plan: Plan) -> Found:
    """Return the arrays that a network reads; a file without targets may be one of an autoencoder."""
    if not zipfile.is_zipfile(path):
        raise DataUnfit(f"{path} cannot be read as .npz: numpy.savez writes such a file")
    try:
        with np.load(path, allow_pickle=False) as file:
            names = [str(name) for name in file.files]
            stored = _stored(path, plan, names)
            size = sum(info.file_size for info in file.zip.infolist() if info.filename[:-4] in stored.values())
            within_memory(size, f"the arrays of {path}", _FEWER)
            arrays = {name: _numbers(path, own, file[own]) for name, own in stored.items()}
    except DataUnfit:
        raise
    except MemoryError:
        raise DataUnfit(f"{path} needs more memory than there is: {_FEWER}") from None
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataUnfit(f"{path} cannot be read as .npz: {reason}") from None
    targets = arrays.pop(TARGETS, None)
    renamed = [f"{name} is the array {own!r}" for name, own in stored.items() if own.endswith("_train")]
    unused = [name for name in names if name not in stored.values()]
    notes = [*renamed, f"arrays that are not used: {', '.join(unused)}"] if unused else renamed
    return Found(arrays, targets, str(path), notes=(*notes, *_bytes(arrays)))


def _stored(path: Path, plan: Plan, names: list[str]) -> dict[str, str]:
    """Return the names in the file of the arrays that a network reads."""
    have = ", ".join(names) or "nothing"
    found = {}
    for key, each in keyed(plan):
        own = next((name for name in (key, each.name, f"{key}_train") if name in names and name != TARGETS), None)
        others = [name for name in names if name != TARGETS]
        if own is None and key == "x":
            if len(others) != 1:
                raise DataUnfit(
                    f"{path} has {', '.join(others) or 'nothing'}, and {plan.name} has one input: call it x"
                )
            own = others[0]
        if own is None:
            raise DataUnfit(f"{path} has {have}, and no array for the input {each.name}: call it {key}")
        found[key] = own
    target = next((name for name in (TARGETS, f"{TARGETS}_train") if name in names), None)
    if target is not None:
        found[TARGETS] = target
    return found


def _numbers(path: Path, name: str, array: Any) -> Array:
    if array.dtype.kind not in "buif":
        raise DataUnfit(f"{path}: {name} holds {array.dtype}, and a network takes numbers")
    if not array.ndim:
        raise DataUnfit(f"{path}: {name} is a single number: the first axis is that of the samples")
    found: Array = array
    return found


def _bytes(inputs: dict[str, Array]) -> list[str]:
    """Return a note for each image of bytes: the values of a file are its user's, and are left as they are."""
    return [
        f"{name} holds bytes up to {array.max()}, which are not scaled: pixels are often divided by 255"
        for name, array in inputs.items()
        if array.dtype == np.uint8 and array.ndim > 2 and array.size and array.max() > 1
    ]
