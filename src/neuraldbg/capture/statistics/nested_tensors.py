"""The tensors inside a nested input or output, each with a name, and those of them whose values can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.program_objects import label, opened
from neuraldbg.capture.guest.tensor_kinds import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 4
_WIDTH = 64
_SIMPLE = (str, int, float)


def seen(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a value whose numbers can be read, each as the ordinary tensor that holds the numbers."""
    for name, x in leaves(value):
        held = tensor_memory.readable(x)
        if held is not None:
            yield name, held


def leaves(value: Any, name: str = "", depth: int = 0, *, closed: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a value in order: ("", t) for a tensor, ("logits", t) and ("1.0", t) for nested ones.

    Tuples, lists, dicts (ModelOutput is one) and dataclasses are walked, at most four levels deep, without a call of
    their methods. Tensors whose class overrides methods that we need are left out unless ``closed``.
    """
    kind = type(value)
    if issubclass(kind, Tensor):
        if closed or readable(value):
            yield name, value
        return
    if depth == _DEPTH or value is None or issubclass(kind, _SIMPLE):
        return
    for key, item in opened(value, _WIDTH) or ():
        yield from leaves(item, f"{name}.{label(key)}" if name else label(key), depth + 1, closed=closed)
