"""Folders of images, in a folder for each class, read by Pillow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neural.data.samples import Found
from neural.errors import DataUnfit, MissingPackage
from neural.plan import shape_text

if TYPE_CHECKING:
    from pathlib import Path

    from neural.plan import Plan

KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_MOST = 2 * 2**30
"""Bytes of all images at most: they are held in memory, and written beside the model."""


def opened(path: Path, plan: Plan) -> Found:
    """Return the images of a folder, as large as the network takes them; classes are its folders in order of names."""
    rows, columns, channels = _size(path, plan)
    classes = sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    files = [(file, number) for number, folder in enumerate(classes) for file in sorted(folder.rglob("*"))]
    images = [(file, number) for file, number in files if file.suffix.lower() in KINDS and file.is_file()]
    if not images:
        raise DataUnfit(f"{path} has no images in folders of their classes, such as {path}/cat/1.png")
    size = len(images) * rows * columns * channels * 4
    if size > _MOST:
        raise DataUnfit(
            f"{len(images):,} images of {shape_text((rows, columns, channels))} take {size / 2**30:.1f} GiB, and "
            f"{_MOST / 2**30:.0f} are the most: take fewer, or write them as a .npz file of bytes"
        )
    pixels = np.empty((len(images), rows, columns, channels), np.float32)
    for at, (file, _) in enumerate(images):
        pixels[at] = _pixels(file, rows, columns, channels)
    other = [file for file, _ in files if file.is_file() and file.suffix.lower() not in KINDS]
    notes = [
        f"classes by number: {', '.join(f'{each.name} {number}' for number, each in enumerate(classes))}",
        f"images are resized to {rows}x{columns} with {channels} channels, and their values are from 0 to 1",
    ]
    if other:
        notes.append(f"{len(other)} files that are no images were left out, such as {other[0]}")
    targets = np.array([number for _, number in images])
    names = tuple(each.name for each in classes)
    return Found({"x": pixels}, targets, f"{path} ({len(classes)} classes)", True, names, notes=tuple(notes))


def _size(path: Path, plan: Plan) -> tuple[int, int, int]:
    shape = plan.inputs[0].shape
    if len(plan.inputs) > 1 or len(shape) != 3 or shape[2] not in _MODES:
        raise DataUnfit(
            f"{path} is a folder of images, and {plan.name} does not take one image of (rows, columns, channels) "
            "with 1, 3 or 4 channels: give a file .npz"
        )
    rows, columns, channels = shape
    if rows is None or columns is None or channels is None:
        raise DataUnfit(f"the images of {path} need one size: give it in the input of {plan.name} in place of None")
    return rows, columns, channels


def _pixels(file: Path, rows: int, columns: int, channels: int) -> np.ndarray[Any, Any]:
    try:
        from PIL import Image  # noqa: PLC0415 (of the extra)
    except ImportError:
        raise MissingPackage("pillow") from None
    try:
        with Image.open(file) as image:
            found = image.convert(_MODES[channels]).resize((columns, rows))
            return np.asarray(found, np.float32).reshape(rows, columns, channels) / 255
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataUnfit(f"{file} cannot be read as an image: {error}") from None
