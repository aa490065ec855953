"""Recurrent layers: fused where torch has them, step by step where Keras means something else."""

from __future__ import annotations

from functools import partial

from neural.layer_writing import NotWritten
from neural.pytorch.activations import activation_function
from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments, sizes_text, unless
from neural.pytorch.weights import first_weights

USUAL = {"activation": "tanh", "recurrent_activation": "sigmoid", "recurrent_dropout": 0.0, "reset_after": True}
"""What torch's fused kernels compute."""
GATES = {"SimpleRNN": 1, "GRU": 3, "LSTM": 4}
"""Matrices that the kernels of a layer have side by side."""


def construct(kind: str, use: Use, *, backwards: bool | None = None) -> tuple[str, str, tuple[str, ...]]:
    """Return the expression that makes a recurrent module, its class, and statements for its first weights."""
    values, mask = use.values, use.inputs[0].mask
    if values["stateful"]:
        raise NotWritten("has stateful=true: a state that outlives a batch is not built")
    fused = mask is None and all(values.get(name, usual) == usual for name, usual in USUAL.items())
    relu = kind == "SimpleRNN" and mask is None and values["activation"] == "relu" and not values["recurrent_dropout"]
    name = kind if fused else f"Stepped{kind}"
    back = values["go_backwards"] if backwards is None else backwards
    words = arguments(
        use.channels,
        values["units"],
        activation=None if values["activation"] == "tanh" else activation_function(values["activation"]),
        recurrent_activation=_gates(values.get("recurrent_activation", "sigmoid")),
        reset_after=unless(values.get("reset_after", True), True),
        use_bias=unless(values["use_bias"], True),
        unit_forget_bias=unless(values.get("unit_forget_bias", True), True),
        return_sequences=unless(values["return_sequences"], False),
        go_backwards=unless(back, False),
        dropout=unless(values["dropout"], 0.0),
        recurrent_dropout=unless(values["recurrent_dropout"], 0.0),
    )
    if relu:
        name = "SimpleRNN"
    names = {"kernel": f"{use.me}.weight_ih", "recurrent": f"{use.me}.weight_hh"}
    if values["use_bias"] and kind == "SimpleRNN":
        names["bias"] = f"{use.me}.bias"
    elif values["use_bias"] and first_weights(values, {"bias": ""}):
        raise NotWritten("has a bias_initializer, which is built for SimpleRNN only")
    units, gates = values["units"], GATES[kind]
    fans = {"kernel": (use.channels, gates * units), "recurrent": (units, gates * units)}
    return f"{name}({words})", name, first_weights(values, names, fans)


def _gates(activation: str) -> str | None:
    return None if activation == "sigmoid" else activation_function(activation)


def write(kind: str, use: Use) -> LayerCode:
    """Return a recurrent layer; the steps of empty places change nothing."""
    module, name, weights = construct(kind, use)
    mask = use.inputs[0].mask
    call = f"{use.me}({use.x}, {mask})" if mask else f"{use.me}({use.x})"
    return LayerCode(call, module, weights=weights, helpers=(name,))


def write_images(kind: str, use: Use) -> LayerCode:
    """Return a recurrent convolution over (steps, height, width, channels)."""
    values = use.values
    if values["stateful"] or set(values["strides"]) != {1}:
        raise NotWritten("is built without stateful=true and without strides above 1 only")
    if values.get("return_state"):
        raise NotWritten("has return_state=true: a state as an output is not built")
    if first_weights(values, {"kernel": "", "recurrent": "", "bias": ""}):
        raise NotWritten("has an initializer, which is built for the usual first weights only")
    words = arguments(
        use.channels,
        values["filters"],
        sizes_text(values["kernel_size"]) if len(set(values["kernel_size"])) > 1 else tuple(values["kernel_size"]),
        padding=unless(values["padding"], "valid"),
        activation=None if values["activation"] == "tanh" else activation_function(values["activation"]),
        recurrent_activation=_gates(values["recurrent_activation"]),
        use_bias=unless(values["use_bias"], True),
        return_sequences=unless(values["return_sequences"], False),
        go_backwards=unless(values["go_backwards"], False),
        dropout=unless(values["dropout"], 0.0),
        recurrent_dropout=unless(values["recurrent_dropout"], 0.0),
    )
    return LayerCode(f"{use.me}({use.x})", f"{kind}({words})", helpers=(kind,))


MEMBERS = (
    *(
        LayerWriter(kind + suffix, partial(write, kind), "last", passes_mask=True)
        for kind in ("LSTM", "GRU", "SimpleRNN")
        for suffix in ("", "Cell", "DropoutWrapper")
    ),
    *(LayerWriter(kind, partial(write_images, kind), "last") for kind in ("ConvLSTM2D", "ConvGRU2D")),
)
