"""From what is asked for to data that fit: the source is found, read and fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.data import archive, bundled, image_folder, synthetic, table, vision
from neural.data.fitting import fitted
from neural.errors import DataUnfit, nearest

if TYPE_CHECKING:
    from pathlib import Path

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
    return fitted(plan, _found(plan, data, dataset, download, seed))


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
    if not path.exists():
        siblings = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        near = nearest(path.name, siblings)
        raise DataUnfit(f"there is no {path}{f': did you mean {path.parent / near}?' if near else ''}")
    if path.is_dir():
        return image_folder.opened(path, plan)
    kind = path.suffix.lower()
    if kind == ".npz":
        return archive.opened(path)
    if kind in table.KINDS:
        return table.opened(path, plan)
    raise DataUnfit(f"{path} is no data: give a folder of images, or a file .npz, {', '.join(table.KINDS)}")
