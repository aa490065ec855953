"""From what is asked for to data that fit: the source is found, read and fitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neural.data import archive, bundled, image_folder, synthetic, table, vision
from neural.data.fitting import fitted
from neural.errors import DataUnfit, nearest

if TYPE_CHECKING:
    from neural.data.samples import Found, Samples
    from neural.plan import Plan

SYNTHETIC = "synthetic"


def samples_for(
    plan: Plan,
    *,
    data: Path | None = None,
    dataset: str | None = None,
    download: bool = False,
    seed: int = 0,
) -> Samples:
    """Return data for a network: those at a path, or a data set by its name. `seed` is that of made-up data.

    Raises DataUnfit, which says what to do, where there are none or where they cannot be brought to fit.
    """
    path = None if data is None else Path(data)
    try:
        return fitted(plan, _found(plan, path, dataset, download, seed))
    except MemoryError:
        raise DataUnfit("there is too little memory for these data: give fewer samples") from None


def _found(plan: Plan, data: Path | None, dataset: str | None, download: bool, seed: int) -> Found:
    if dataset is None:
        if data is None:
            raise DataUnfit(
                f"say what {plan.name} is trained on: --data with a folder of images or a file .npz, .csv or .parquet, "
                f"or --dataset with one of {', '.join((*bundled.NAMES, SYNTHETIC))}"
            )
        return _at(data, plan)
    name = dataset.lower().replace("-", "_")
    if name in vision.NAMES:
        return vision.opened(name, data, download=download)
    if data is not None:
        raise DataUnfit("--data and --dataset are two sources: give one of them")
    if name == SYNTHETIC:
        return synthetic.made(plan, seed)
    if name in bundled.NAMES:
        return bundled.opened(name)
    known = (*bundled.NAMES, *vision.NAMES, SYNTHETIC)
    near = nearest(name, known)
    raise DataUnfit(
        f"there is no data set {dataset!r}: {f'did you mean {near}? There are' if near else 'there are'} "
        f"{', '.join(known)}"
    )


def _at(path: Path, plan: Plan) -> Found:
    try:
        there, folder, file = path.exists(), path.is_dir(), path.is_file()
    except OSError as error:  # a name that is too long, or a folder that nobody may look into
        raise DataUnfit(f"{path} cannot be read: {error.strerror or error}") from None
    if not there:
        near = nearest(path.name, _siblings(path))
        link = " but a link that leads nowhere" if path.is_symlink() else ""
        raise DataUnfit(f"there is no {path}{link}{f': did you mean {path.parent / near}?' if near else ''}")
    if folder:
        return image_folder.opened(path, plan)
    kind = path.suffix.lower()
    if not file or kind not in {".npz", *table.KINDS}:  # a pipe would wait for ever
        raise DataUnfit(f"{path} is no data: give a folder of images, or a file .npz, {', '.join(table.KINDS)}")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise DataUnfit(f"{path} cannot be read: {error.strerror or error}") from None
    return archive.opened(path, plan) if kind == ".npz" else table.opened(path, plan)


def _siblings(path: Path) -> list[str]:
    try:
        return [each.name for each in path.parent.iterdir()]
    except OSError:
        return []
