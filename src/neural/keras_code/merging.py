"""Layers that make one output of several inputs. A projection of a sum is written by `network_function.py`."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given, listed
from neural.layer_writing import NotWritten
from neural.pytorch.layer_code import arguments


def merge(use: Use) -> LayerCode:
    """Return the layer of the same name."""
    return LayerCode(f"layers.{use.layer.type}", reads=listed(use))


def subtract(use: Use) -> LayerCode:
    """Return a difference, which Keras takes of two inputs."""
    if len(use.inputs) != 2:
        raise NotWritten(f"has {len(use.inputs)} inputs, and Keras's takes two: write one after another")
    return merge(use)


def join(use: Use) -> LayerCode:
    """Return the inputs one after another along an axis."""
    return LayerCode("layers.Concatenate", arguments(**given(use.values, axis=-1)), listed(use))


def dot(use: Use) -> LayerCode:
    """Return the products along one axis of each input."""
    axes = tuple(use.values["axes"])
    words = arguments(axes[0] if len(set(axes)) == 1 else axes, **given(use.values, normalize=False))
    return LayerCode("layers.Dot", words, listed(use))


MEMBERS = (
    *(LayerWriter(kind, merge, keeps_steps=True) for kind in ("Add", "Average", "Maximum", "Minimum", "Multiply")),
    LayerWriter("Subtract", subtract, keeps_steps=True),
    LayerWriter("Concatenate", join, keeps_steps=True),
    LayerWriter("Dot", dot),
)
