"""Folders of images, in a folder for each class, read by Pillow."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neural.data.memory import within_memory
from neural.data.samples import Found, counted
from neural.errors import DataUnfit, MissingPackage
from neural.plan import shape_text

if TYPE_CHECKING:
    from neural.data.samples import Array
    from neural.plan import Plan

KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}
"""Folders that divide the data, and are no classes."""
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_BYTES = "8 bits divided by 255"
_DEEP = 65535
_SHOWN = 5


def opened(path: Path, plan: Plan) -> Found:
    """Return the images of a folder, as large as the network takes them; classes are its folders in order of names.

    They are in an order by chance, as the last samples are for validation: those of one class alone would say nothing.
    """
    classes = _classes(path)
    size = rows, columns, channels = _size(path, plan)
    images, other = [], [each for each in _listed(path) if each.is_file() and not each.name.startswith(".")]
    for number, folder in enumerate(classes):
        for file in _files(folder):
            if file.suffix.lower() in KINDS and file.is_file():
                images.append((file, number))
            else:
                other.append(file)
    if not images:
        raise DataUnfit(f"{path} has no images in folders of their classes, such as {path}/cat/1.png")
    needed = len(images) * rows * columns * channels * 4
    advice = "take fewer, give the network a smaller input, or write them as a .npz file of bytes"
    within_memory(needed, f"{len(images):,} images of {shape_text(size)}", advice)
    pixels = np.empty((len(images), *size), np.float32)
    numbers: list[int] = []
    bad: list[Path] = []
    reason = ""
    depths: set[str] = set()
    for file, number in images:
        found = _pixels(file, size, depths)
        if isinstance(found, str):
            bad.append(file)
            reason = reason or found
        else:
            pixels[len(numbers)] = found
            numbers.append(number)
    if not numbers:
        raise DataUnfit(f"{bad[0]} cannot be read as an image: {reason}; nor can any other of {path}")
    names = tuple(each.name for each in classes)
    targets = np.array(numbers)
    how = "" if depths == {_BYTES} else f": {', '.join(sorted(depths, reverse=True))}"
    sized = f"images are resized to {rows}x{columns} with {counted(channels, 'channel')}"
    notes = [
        f"classes by number: {', '.join(f'{name} {number}' for number, name in enumerate(names))}",
        f"{sized}, and their values are from 0 to 1{how}",
    ]
    empty = [name for number, name in enumerate(names) if number not in set(numbers)]
    notes += [f"classes without an image: {_named(empty)}"] if empty else []
    if other:
        are = "that is no image was" if len(other) == 1 else "that are no images were"
        notes.append(f"{counted(len(other), 'file')} {are} left out, such as {_named(other)}")
    if bad:
        were = "was" if len(bad) == 1 else "were"
        notes.append(f"{counted(len(bad), 'image')} cannot be read, and {were} left out: {_named(bad)} ({reason})")
    notes.append("samples are in an order by chance, which is the same each time")
    order = np.random.default_rng(0).permutation(len(numbers))
    source = f"{path} ({len(classes)} classes)"
    return Found({"x": pixels[order]}, targets[order], source, True, names, notes=tuple(notes))


def _named(files: list[Any]) -> str:
    return ", ".join(str(file) for file in files[:_SHOWN]) + (", ..." if len(files) > _SHOWN else "")


def _listed(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError as error:
        raise DataUnfit(f"{path} cannot be read: {error.strerror or error}") from None


def _classes(path: Path) -> list[Path]:
    """Return the folders of the classes. DataUnfit is raised if there are none, or if they are parts of the data."""
    inside = _listed(path)
    classes = [each for each in inside if each.is_dir() and not each.name.startswith((".", "__"))]
    if not classes:
        images = sum(each.suffix.lower() in KINDS for each in inside)
        has = f"{images:,} images and no folders" if images else "no folders"
        raise DataUnfit(
            f"{path} has {has}, and has no images in folders of their classes: move them into a folder for each class, "
            f"such as {path}/cat/1.png"
        )
    parts = [each.name for each in classes if each.name.lower() in PARTS]
    if len(parts) == len(classes):
        own = next((name for name in parts if name.lower().startswith("train")), parts[0])
        raise DataUnfit(f"{path} has the folders {', '.join(parts)}, which are no classes: give {path / own}")
    return classes


def _files(folder: Path) -> list[Path]:
    """Return all files below a folder; a link to a folder is returned, and not followed: it may lead in a circle."""

    def fail(error: OSError) -> None:
        raise DataUnfit(f"{error.filename or folder} cannot be read: {error.strerror or error}")

    found = []
    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [each for each in folders if not each.startswith(".")]
        found += [Path(place, each) for each in files if not each.startswith(".")]
        found += [Path(place, each) for each in folders if Path(place, each).is_symlink()]
    return sorted(found)


def _size(path: Path, plan: Plan) -> tuple[int, int, int]:
    shape = plan.inputs[0].shape
    if len(plan.inputs) > 1 or plan.inputs[0].ids or len(shape) != 3 or shape[2] not in _MODES:
        raise DataUnfit(
            f"{path} is a folder of images, and {plan.name} does not take one image of (rows, columns, channels) "
            "with 1, 3 or 4 channels: give a file .npz"
        )
    rows, columns, channels = shape
    if rows is None or columns is None or channels is None:
        raise DataUnfit(f"the images of {path} need one size: give it in the input of {plan.name} in place of None")
    return rows, columns, channels


def _pixels(file: Path, size: tuple[int, int, int], depths: set[str]) -> Array | str:
    """Return the pixels of the first picture in a file, upright, or why it cannot be read.

    How its values came to be from 0 to 1 is added to `depths`.
    """
    try:
        from PIL import Image, ImageOps  # noqa: PLC0415 (of the extra)
    except ImportError:
        raise MissingPackage("pillow") from None
    rows, columns, channels = size
    try:
        with warnings.catch_warnings(), Image.open(file) as image:
            warnings.simplefilter("ignore")  # of odd metadata
            upright = ImageOps.exif_transpose(image)
            deep = upright.mode.startswith(("I", "F"))
            if deep:  # more than 8 bits, which `convert` would cut off at 255
                upright = Image.fromarray(_scaled(file, np.asarray(upright), depths))
            found = np.asarray((upright if deep else upright.convert(_MODES[channels])).resize((columns, rows)))
    except DataUnfit:
        raise
    except Image.DecompressionBombError:
        return "it has too many pixels"
    except MemoryError:
        return "there is too little memory for it"
    except Exception as error:  # noqa: BLE001 (a broken file fails in as many ways as there are formats)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return reason.replace(f" {str(file)!r}", "").replace(f" {file}", "") or type(error).__name__
    if not deep:
        depths.add(_BYTES)
        return found.reshape(size).astype(np.float32) / 255
    pixels = np.repeat(found.clip(0, 1)[..., None], channels, axis=2)  # resizing may go beyond
    if channels == 4:
        pixels[..., 3] = 1  # nothing is transparent
    return pixels


def _scaled(file: Path, values: Array, depths: set[str]) -> Array:
    """Return the values of a picture of more than 8 bits from 0 to 1: by its kind, never by its own brightness."""
    low, high = (values.min(), values.max()) if values.size else (0, 0)
    if values.dtype.kind == "f":
        if not (low >= 0 and high <= 1):  # also for NaN
            raise DataUnfit(f"{file} has values from {low:g} to {high:g}: images of floats need them from 0 to 1")
        depths.add("floats as they are")
        return values.astype(np.float32)
    if low < 0 or high > _DEEP:
        raise DataUnfit(f"{file} has values from {low} to {high}: images of whole numbers need them from 0 to {_DEEP}")
    depths.add(f"16 bits divided by {_DEEP}")
    return values.astype(np.float32) / _DEEP
