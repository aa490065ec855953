"""The backends of `--backend`: their names, what each can do, and whether its packages are installed.

Packages are looked for and never imported: this module is for commands that say what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from neural.errors import MissingPackage, NotDebugged, UnknownBackend, nearest


@dataclass(frozen=True)
class Backend:
    """Hold one value of `--backend`."""

    name: str
    label: str
    """Its name in a sentence."""
    packages: tuple[str, ...]
    """The packages that it imports, to build or to write a model."""
    install: str
    """The words after `pip install`."""
    runs: bool = True
    """True if `neural run` can train with it."""
    debugged: bool = False
    """True if `neural debug` can watch it."""
    suffix: str = ".py"
    """What follows the name of the model in that of the file that `neural compile` writes."""


BACKENDS = (
    Backend("jax", "JAX", ("keras", "jax"), "keras jax", suffix="_jax.py"),
    Backend("keras", "Keras", ("keras",), "keras", suffix="_keras.py"),
    Backend("onnx", "ONNX", ("torch", "onnx", "onnxscript"), "'neuraldbg[onnx]'", runs=False, suffix=".onnx"),
    Backend("pytorch", "PyTorch", ("torch",), "torch", debugged=True),
    Backend("tensorflow", "TensorFlow", ("keras", "tensorflow"), "keras tensorflow", suffix="_tensorflow.py"),
)
"""`keras` is what Keras is set to: by KERAS_BACKEND, or by its own file of settings."""
NAMES = tuple(each.name for each in BACKENDS)
RUN = tuple(each.name for each in BACKENDS if each.runs)
KERAS = 3
"""The first version of Keras that has more than one backend."""


def backend(name: str) -> Backend:
    """Return the backend of a name in any case, or raise UnknownBackend."""
    for each in BACKENDS:
        if each.name == name.lower():
            return each
    near = nearest(name, NAMES)
    words = f"; did you mean {near}?" if near else ""
    raise UnknownBackend(f"there is no backend {name!r}: it is one of {', '.join(NAMES)}{words}")


def missing(chosen: Backend) -> tuple[str, ...]:
    """Return the packages of a backend that are not installed."""
    return tuple(each for each in chosen.packages if not _installed(each))


def require(chosen: Backend) -> None:
    """Raise MissingPackage with the line for pip if a package of the backend is not installed."""
    for package in missing(chosen):
        raise MissingPackage(package, chosen.install, f"the backend {chosen.name}")


def require_run(chosen: Backend) -> None:
    """Raise NotDebugged or MissingPackage if `neural run` cannot train with a backend."""
    if not chosen.runs:
        raise NotDebugged(f"{chosen.label} is a format of files: neural compile --backend {chosen.name} writes one")
    require(chosen)


def require_debug(chosen: Backend) -> None:
    """Raise NotDebugged if `neural debug` cannot watch a backend."""
    if not chosen.debugged:
        raise NotDebugged(
            f"the debugger watches PyTorch, and not {chosen.label}: leave out --backend, or use neural run"
        )


def _installed(package: str) -> bool:
    """Return True if a package can be imported; Keras counts from version 3 on."""
    try:
        if find_spec(package) is None:
            return False
        return package != "keras" or int(version("keras").partition(".")[0]) >= KERAS
    except (ImportError, PackageNotFoundError, ValueError):
        return False
