"""The options of every command that trains: which network, on what, for how long, on what device."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("backend", "network", "data", "dataset", "download", "epochs", "batch_size", "seed", "device")

_OPTIONS = (
    click.option(
        "-b", "--backend", default="pytorch", metavar="NAME", help="pytorch; tensorflow or jax by Keras 3 if installed."
    ),
    click.option(
        "--network", metavar="NAME", help="The network to train, if the file has several. Default: the first."
    ),
    click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="What to train on: a folder of images in a folder for each class, or a file .npz, .csv or .parquet.",
    ),
    click.option(
        "--dataset",
        metavar="NAME",
        help="A data set of scikit-learn (digits, iris, wine, breast_cancer, diabetes, linnerud) or, if it is on disk, "
        "of torchvision (mnist, cifar10, ...); `synthetic`: made-up data, which every picture says. Default: one of "
        "scikit-learn's if the network is made for its shapes.",
    ),
    click.option("--download", is_flag=True, help="Let torchvision download the data set: nothing is without this."),
    click.option("--epochs", type=click.IntRange(min=1), help="Default: what the file says, or 10."),
    click.option("--batch-size", type=click.IntRange(min=1), help="Default: what the file says, or 32."),
    click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Default: what the file says, or 0."),
    click.option(
        "-d", "--device", metavar="NAME", help="auto, cpu, gpu or cuda:1. Default: what the file says, or auto."
    ),
)


def training_options(function: Callable[..., Any], *, debugged: bool = False) -> Callable[..., Any]:
    """Add the options to a command, which is given them as `wanted`; `debugged` if NeuralDBG watches the training.

    Raises UnknownBackend, NotDebugged or MissingPackage before the command begins.
    """

    @wraps(function)
    def called(**given: Any) -> Any:
        from neural.backends import backend, require_debug, require_run  # noqa: PLC0415 (--help needs none of it)
        from neural.preparing import Wanted  # noqa: PLC0415

        asked = {name: given.pop(name) for name in NAMES}
        chosen = backend(asked["backend"])
        (require_debug if debugged else require_run)(chosen)
        asked |= {"device": device_of(asked["device"]), "backend": chosen.name}
        return function(**given, wanted=Wanted(**asked))

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def device_of(name: str | None) -> str | None:
    """Return a device as torch calls it; None is that of the file."""
    if name is None or name.lower() == "auto":
        return None
    kind, colon, number = name.lower().partition(":")
    return f"{'cuda' if kind == 'gpu' else kind}{colon}{number}"
