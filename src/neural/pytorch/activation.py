"""Activation as a module of torch."""

from __future__ import annotations

from neural.layer_writing import NotWritten
from neural.pytorch.activations import activated, activation_module
from neural.pytorch.layer_code import LayerCode, LayerWriter, Use


def write(use: Use) -> LayerCode:
    """Return the module of an activation, or an expression where torch has no module."""
    name, axis = use.values["activation"], use.inputs[0].channel_axis
    module = activation_module(name, axis)
    if not module:
        return LayerCode(activated(use.x, name, axis), comment=use.layer.name)
    return LayerCode(f"{use.me}({use.x})", module)


def write_penalty(_: Use) -> LayerCode:
    """Refuse a layer that adds the size of its input to the loss."""
    raise NotWritten('adds its input to the loss, which is not built: kernel_regularizer="l2" is, at a Dense or Conv')


MEMBERS = (
    LayerWriter("Activation", write, passes_mask=True),
    *(LayerWriter(name, write_penalty) for name in ("ActivityRegularization", "L1", "L2", "L1L2")),
)
