"""The tensors inside a nested input or output, each with a name; and which of them can be read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 4
_WIDTH = 64


def leaves(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Go through the tensors of a value in order: ("", t) for a tensor, ("logits", t) and ("1.0", t) for nested ones.

    Tuples, lists, mappings (ModelOutput is one) and dataclasses are walked, at most four levels deep.
    """
    if isinstance(value, Tensor):
        yield name, value
        return
    if depth == _DEPTH or value is None or isinstance(value, (str, int, float)):
        return
    items: Any
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (tuple, list)):
        items = enumerate(value[:_WIDTH])
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = ((f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value))
    else:
        return
    for key, item in items:
        yield from leaves(item, f"{name}.{key}" if name else str(key), depth + 1)
