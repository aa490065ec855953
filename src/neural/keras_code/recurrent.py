"""Recurrent layers, which Keras has all but ConvGRU2D."""

from __future__ import annotations

import re

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.keras_code.weights import weight_words
from neural.layer_writing import NotWritten
from neural.pytorch.layer_code import arguments, sizes_text

USUAL = {
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "use_bias": True,
    "unit_forget_bias": True,
    "reset_after": True,
    "return_sequences": False,
    "go_backwards": False,
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
}


def _words(use: Use) -> dict[str, str]:
    values = use.values
    if values["stateful"]:
        raise NotWritten("has stateful=true: a state that outlives a batch is not built")
    known = {name: usual for name, usual in USUAL.items() if name in values}
    return {**given(values, **known), **weight_words(values, "kernel", "recurrent", "bias")}


def write(use: Use) -> LayerCode:
    """Return a recurrent layer; a cell is run over the sequence."""
    kind = re.sub(r"(Cell|DropoutWrapper)$", "", use.layer.type)
    return LayerCode(f"layers.{kind}", arguments(use.values["units"], **_words(use)))


def write_images(use: Use) -> LayerCode:
    """Return a recurrent convolution over (steps, height, width, channels)."""
    values = use.values
    strides = {} if set(values["strides"]) == {1} else {"strides": sizes_text(values["strides"])}
    words = {**strides, **given(values, padding="valid"), **_words(use)}
    sizes = (values["filters"], sizes_text(values["kernel_size"]))
    if use.layer.type == "ConvLSTM2D":
        return LayerCode("layers.ConvLSTM2D", arguments(*sizes, **words))
    refused = [name for name in words if name.endswith(("zer", "constraint")) or name == "strides"]
    if refused or None in use.shape:
        why = f"{refused[0]}" if refused else "sizes that only the data tell"
        raise NotWritten(f"has {why}, which is not built")
    return LayerCode("ConvGRU2D", arguments(*sizes, **words), helpers=("ConvGRU2D",))


MEMBERS = (
    *(
        LayerWriter(kind + suffix, write, keeps_steps=True)
        for kind in ("LSTM", "GRU", "SimpleRNN")
        for suffix in ("", "Cell", "DropoutWrapper")
    ),
    *(LayerWriter(kind, write_images) for kind in ("ConvLSTM2D", "ConvGRU2D")),
)
