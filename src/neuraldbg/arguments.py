"""Checks of the arguments of public methods: a value in, the same value or a ConfigError that says what to give out."""

from __future__ import annotations

import math
import operator
import os
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from neuraldbg.errors import ConfigError

F = TypeVar("F")


def text(value: object, what: str) -> str:
    """Return a string. ``what`` says what should be text: "script", "a layer is named by its path"."""
    if not isinstance(value, str):
        raise ConfigError(f"{what}: give text, not {_shown(value)}")
    return value


def layer_name(value: object) -> str:
    """Return the name of a layer."""
    return text(value, "a layer is named by its path in the model ('0', 'encoder.fc') or its alias ('linear1')")


def whole(value: Any, what: str) -> int:
    """Return an integer, of Python or of numpy. ``what`` names the argument: "step"."""
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise ConfigError(f"{what}: give a whole number, such as 3, not {_shown(value)}")
    try:
        return operator.index(value)
    except TypeError:  # a tensor or an array of several numbers
        raise ConfigError(f"{what}: give one whole number, not {_shown(value)}") from None


def positive(value: Any, what: str) -> float:
    """Return a finite number above zero."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not known or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{what}: give a number above zero, not {_shown(value)}")
    return float(value)


def seconds(value: Any, what: str) -> float:
    """Return a finite number of seconds, zero or above."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not known or not 0 <= value < math.inf:
        raise ConfigError(f"{what}: give seconds, such as 60, or 0 for no limit, not {_shown(value)}")
    return float(value)


def is_number(value: object) -> bool:
    """Return True for a number, or for a tensor or array that stands for one."""
    return hasattr(value, "__float__") and not isinstance(value, str)


def path(value: object, what: str) -> Path:
    """Return a path. ``what`` says which: "out"."""
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigError(f"{what}: give a path as text or pathlib.Path, not {_shown(value)}")
    return Path(value)


def texts(value: object, what: str) -> tuple[str, ...]:
    """Return several strings: a single one is refused, as its letters would be taken one by one."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ConfigError(f"{what}: give a list of text, such as ['linear1'], not {_shown(value)}")
    found = tuple(value)
    for one in found:
        if not isinstance(one, str):
            raise ConfigError(f"{what}: each must be text, not {_shown(one)}")
    return found


def several(value: object) -> tuple[Any, ...]:
    """Return the items of a tuple or a list; of anything else a tuple of itself."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def mapping(value: object, what: str) -> Mapping[Any, Any]:
    """Return a mapping."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what}: give a dictionary, not {_shown(value)}")
    return value


def function(value: F, what: str) -> F:
    """Return a function, or None."""
    if value is not None and not callable(value):
        raise ConfigError(f"{what}: give a function, or None for none, not {_shown(value)}")
    return value


def writable(given: str | Path, what: str) -> Path:
    """Return the absolute path of a file that can be written: the program may change its folder. ``what`` names the
    argument: "--json". Raises ConfigError, which says why it cannot.
    """
    try:
        file = Path(given).absolute()
    except OSError:
        raise ConfigError(f"{what} {given}: the folder that you are in was deleted; give a path from /") from None
    if file.is_dir():
        raise ConfigError(f"{what} {given}: this is a folder; give the name of a file")
    if not file.parent.is_dir():
        raise ConfigError(f"{what} {given}: there is no folder {file.parent}; create it first")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError(f"{what} {given}: no permission to write there")
    return file


def one_of(value: F, kinds: tuple[type, ...], what: str) -> F:
    """Return a value of one of some classes. ``what`` says what to give."""
    if not isinstance(value, kinds):
        raise ConfigError(f"{what}, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    kind = type(value).__name__
    plain = isinstance(value, (str, bytes, int, float, list, tuple, dict, type(None)))
    return (
        f"{reprlib.repr(value)} ({kind})" if plain and value is not None else "None" if value is None else f"a {kind}"
    )
