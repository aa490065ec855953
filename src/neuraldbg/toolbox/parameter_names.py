"""The layer and the parameter that a name means, in the ways of several frameworks."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from neuraldbg.errors import ConfigError

_PARAMETERS = frozenset(
    {"weight", "bias", "kernel", "gamma", "beta", "scale", "embedding", "embeddings", "recurrent_kernel"}
    | {"moving_mean", "moving_variance", "running_mean", "running_var", "w", "b"}
)
"""Names of parameters, in lower case."""
_PARTS = ("weight", "bias", "kernel")
"""Parts of names of parameters: ``weight_ih_l0``."""
_KEYS = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]")
"""A key as JAX prints it: ``['dense']['kernel']``."""
_BIAS = re.compile(r"b_?\d*|.*bias.*", re.IGNORECASE)
_SAME = {
    "kernel": "weight",
    "w": "weight",
    "gamma": "weight",
    "scale": "weight",
    "embedding": "weight",
    "embeddings": "weight",
    "b": "bias",
    "beta": "bias",
}
"""Names of parameters that are one in a run, in lower case: a run calls them as torch does."""
_DEEPEST = 32
"""Levels of a nested value: one that holds itself ends there."""


@functools.lru_cache(maxsize=10_000)
def owner_of(name: str) -> tuple[str, str, str]:
    """Return the layer that a name means, and its parameter as a run calls it, and as it is called in the name.

    A name without a parameter in it is that of a layer, whose parameter is then its weight, or its bias if it is
    called so (``b1``).

    >>> owner_of("fc1.weight"), owner_of("dense/kernel")
    (('fc1', 'weight', 'weight'), ('dense', 'weight', 'kernel'))
    """
    path = _KEYS.sub(r"/\1", name).lstrip("/.") or name
    for sign in ("/", "."):
        layer, _, last = path.rpartition(sign)
        last = last.split(":")[0]  # "kernel:0" in TensorFlow
        if layer and (last.lower() in _PARAMETERS or any(part in last.lower() for part in _PARTS)):
            return layer, _SAME.get(last.lower(), last.replace("kernel", "weight")), last
    return path, "bias" if _BIAS.fullmatch(path) else "weight", path


def leaves(tree: Any, what: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each array in nested dictionaries, lists, tuples and dataclasses, names joined
    by "/". Raises ConfigError for a single array, which has no name.
    """
    if not _holds(tree):
        raise ConfigError(f"{what}: give arrays by name, such as {{'dense1/kernel': array}}, not a {_kind(tree)}")
    yield from _walk(tree, "", 0)


def _walk(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _DEEPEST:
        raise ConfigError(
            f"{path.split('/', maxsplit=1)[0]!r} is nested more than {_DEEPEST} levels deep: give arrays by name"
        )
    for name, value in _items(tree):
        here = f"{path}/{name}" if path else str(name)
        if _holds(value):
            yield from _walk(value, here, depth + 1)
        elif value is not None:
            yield here, value


def _holds(value: Any) -> bool:
    """Return True for a value that holds others by name or place, and is no array."""
    if isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return True
    return isinstance(value, (list, tuple)) and any(hasattr(one, "shape") or _holds(one) for one in value)


def _items(tree: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tree, Mapping):
        yield from tree.items()
    elif isinstance(tree, (list, tuple)):
        named = getattr(tree, "_fields", None)  # a NamedTuple
        yield from zip(named, tree, strict=True) if named else enumerate(tree)
    else:
        yield from ((field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree))


def _kind(value: Any) -> str:
    return type(value).__name__
