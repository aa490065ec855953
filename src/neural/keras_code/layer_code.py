"""The contract of a layer's code in Keras: a `Use` of a layer enters, a `LayerCode` leaves.

A file of this folder that holds a family has a tuple `MEMBERS` of `LayerWriter`. A layer that cannot be written raises
`NotWritten`, whose message becomes a problem at the layer's place in the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neural.layer_writing import LayerUse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neural.plan import Shape


@dataclass(frozen=True)
class Wire:
    """Hold a tensor of the generated `build_model`."""

    text: str
    """The variable that holds it."""
    shape: Shape
    """Its shape as in the plan: without the batch."""
    places: str | None = None
    """The variable that is true where a step is no empty place, None if no Embedding gave its steps."""


@dataclass(frozen=True)
class Use(LayerUse[Wire]):
    """Hold one layer with the tensors that it reads, and the backend of the file."""

    backend: str = "keras"
    """What Keras runs on: `jax`, `tensorflow`, or `keras` if the file leaves it open."""


@dataclass(frozen=True)
class LayerCode:
    """Hold the code of one layer."""

    make: str
    """The class, such as `layers.Dense`."""
    words: str = ""
    """Its arguments, without the name of the layer."""
    reads: str = ""
    """The arguments of its call, "" for its first input alone."""
    helpers: tuple[str, ...] = ()
    """The names of `neural.keras_code.modules` that it uses."""
    blocks: int = 1
    """Number of such layers after one another."""


@dataclass(frozen=True)
class LayerWriter:
    """Write the code of one type of layer."""

    type: str
    """Its canonical name, as in `neural.layers`."""
    write: Callable[[Use], LayerCode]
    keeps_steps: bool = False
    """True if an empty place of its input is an empty place of its output."""


def literal(value: Any) -> str:
    """Return a value as Python writes it, a string in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def given(values: Mapping[str, Any], **usual: Any) -> dict[str, str]:
    """Return the parameters that differ from Keras's defaults, as arguments."""
    return {name: literal(values[name]) for name, default in usual.items() if values[name] != default}


def listed(use: Use) -> str:
    """Return all inputs as a list, as merging layers of Keras read them."""
    return f"[{', '.join(wire.text for wire in use.inputs)}]"
