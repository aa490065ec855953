"""Values that a layer has and nobody uses: they and the shape of its input enter, sentences for the notes leave.

Public files give sizes that the input has anyway. One that contradicts it is told, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neural.layers.parameter import value_words
from neural.plan import shape_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from neural.check.expansion import Use
    from neural.layers.layer_type import Values
    from neural.plan import Shape

ALIASES = {"embed_dim": ("d_model",), "d_model": ("embed_dim",)}


def unused(use: Use, values: Values, shape: Shape) -> Iterator[str]:
    """Give a sentence for each value of a layer that is not used and says something else than what is."""
    named = {each.name for each in use.given if each.name}
    for name, why in _unused(values, shape, use.type.name):
        shown = next((each for each in ALIASES.get(name, ()) if each in named), name)
        yield f"{shown}={value_words(values[name])} of {use.type.name} is not used: {why}"


def _unused(values: Values, shape: Shape, kind: str) -> Iterator[tuple[str, str]]:
    """Give the name of each such value, and what is taken instead."""
    for name in ("input_shape", "batch_input_shape"):
        if not _is_shape(values[name], shape, batch=name.startswith("batch")):
            yield name, f"its input is {shape_text(shape)}"
    if values["dtype"] not in (None, "float32"):
        yield "dtype", "all parameters are of 32 bits"
    for name in ("embed_dim", "d_model"):
        if values.get(name) not in (None, shape[-1]):
            yield name, f"its input has {shape[-1]} features"
    if values.get("batch_first", None) is False:
        yield "batch_first", "the batch comes first"
    if values.get("return_attention_scores"):
        yield "return_attention_scores", "a layer has one output"
    if kind == "Embedding":
        if values["weights"] is not None:
            yield "weights", "training begins at random"
        if not _is_shape(values["input_length"], shape, batch=False):
            yield "input_length", f"its input is {shape_text(shape)}"


def _is_shape(value: Any, shape: Collection[int | None], *, batch: bool) -> bool:
    """Return True if a value is the shape, or leaves it open. None stands for any size."""
    if value is None:
        return True
    sizes = value if isinstance(value, tuple) else (value,)
    sizes = sizes[1:] if batch else sizes
    return len(sizes) == len(shape) and all(a is None or b is None or a == b for a, b in zip(sizes, shape, strict=True))
