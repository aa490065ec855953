"""Activation, and layers that only add to the loss."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, literal


def write(use: Use) -> LayerCode:
    """Return an activation."""
    return LayerCode("layers.Activation", literal(use.values["activation"]))


def penalize(use: Use) -> LayerCode:
    """Return a layer that adds the size of its input to the loss."""
    words = ", ".join(f"{name}={use.values[name]!r}" for name in ("l1", "l2") if use.values.get(name))
    return LayerCode("layers.ActivityRegularization", words)


MEMBERS = (
    LayerWriter("Activation", write, keeps_steps=True),
    *(LayerWriter(name, penalize, keeps_steps=True) for name in ("ActivityRegularization", "L1", "L2", "L1L2")),
)
