"""Recurrent layers: LSTM, GRU, SimpleRNN, their cells, and their forms with a convolution."""

from __future__ import annotations

from functools import partial
from math import prod

from neural.layers.convolution import FORMAT, windows
from neural.layers.layer_type import (
    BIASED,
    WEIGHTED,
    Inferred,
    LayerType,
    ShapeFault,
    Values,
    sequence,
    spatial,
    weight_parameters,
)
from neural.layers.parameter import ACTIVATION, COUNT, FLAG, FRACTION, REQUIRED, Parameter, one_of, sizes
from neural.plan import Shape, shape_text

GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}
CELL = "a cell in a list of layers is run over the sequence, as the layer of the same name"


def _refuse(values: Values) -> None:
    """Raise ShapeFault for what gives another output or reads another input than all layers here do."""
    if values["return_state"]:
        raise ShapeFault("has return_state=true: only one output of a layer can be used here")
    if values["time_major"]:
        raise ShapeFault("has time_major=true: the batch comes first here, then the steps")


def recur(kind: str, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the output of each step, or of the last one."""
    features = sequence(shapes[0])
    _refuse(values)
    units, gates = values["units"], GATES[kind]
    # Keras's GRU has a second bias, for what comes from the step before (reset_after=True).
    biases = gates * units * (2 if kind == "GRU" and values["reset_after"] else 1) if values["use_bias"] else 0
    shape = (shapes[0][0], units) if values["return_sequences"] else (units,)
    return Inferred(shape, gates * units * (features + units) + biases)


def recur_images(gates: int, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the output of a recurrent convolution over (steps, height, width, channels)."""
    if len(shapes[0]) != 4:
        raise ShapeFault(f"needs an input of (steps, height, width, channels), and gets {shape_text(shapes[0])}")
    _refuse(values)
    space, channels = spatial(shapes[0][1:], 2)
    filters, kernel = values["filters"], prod(values["kernel_size"])
    found = windows(space, values, values["kernel_size"])
    weights = gates * kernel * (channels + filters) * filters + (gates * filters if values["use_bias"] else 0)
    return Inferred((*shapes[0][:1], *found, filters) if values["return_sequences"] else (*found, filters), weights)


SHARED = (
    Parameter("return_sequences", FLAG, False, "Give the output of every step, not of the last one only"),
    Parameter("return_state", FLAG, False, "Give the state as well, which no layer here can read"),
    Parameter("go_backwards", FLAG, False, "Read the sequence from its end"),
    Parameter("stateful", FLAG, False, "Begin each batch with the state of the one before"),
    Parameter("unroll", FLAG, False, "Not used: it changes no result"),
    Parameter("time_major", FLAG, False, "Refused if it is true: the batch comes first"),
    Parameter("dropout", FRACTION, 0.0, "Share of the input that is dropped"),
    Parameter("recurrent_dropout", FRACTION, 0.0, "Share of the state that is dropped"),
    *weight_parameters("recurrent"),
)


def _recurrent(kind: str, suffix: str = "") -> LayerType:
    gate = Parameter("recurrent_activation", ACTIVATION, "sigmoid", "The activation of its gates")
    own: tuple[Parameter, ...] = {
        "LSTM": (gate, Parameter("unit_forget_bias", FLAG, True, "Begin with a bias of 1 at the forget gate")),
        "GRU": (gate, Parameter("reset_after", FLAG, True, "Apply the reset gate after the matrix")),
        "SimpleRNN": (),
    }[kind]
    words = {"LSTM": "long short-term memory", "GRU": "gated recurrent unit", "SimpleRNN": "plain recurrence"}[kind]
    return LayerType(
        kind + suffix,
        f"Reads a sequence step by step: the {words}.",
        (
            Parameter("units", COUNT, REQUIRED, "Size of its output and of its state"),
            Parameter("activation", ACTIVATION, "tanh", "The activation of its output"),
            BIASED,
            *own,
            *SHARED,
            *WEIGHTED,
        ),
        partial(recur, kind),
        positional=1,
        approximated=CELL if suffix == "Cell" else "",
    )


def _images(name: str, gates: int, approximated: str) -> LayerType:
    return LayerType(
        name,
        "Reads a sequence of images step by step, with convolutions in place of matrices.",
        (
            Parameter("filters", COUNT, REQUIRED, "Number of channels of its output"),
            Parameter("kernel_size", sizes(2), (3, 3), "Size of the window along each axis"),
            Parameter("activation", ACTIVATION, "tanh", "The activation of its output"),
            Parameter("recurrent_activation", ACTIVATION, "sigmoid", "The activation of its gates"),
            Parameter("strides", sizes(2), (1, 1), "Step of the window along each axis"),
            Parameter("padding", one_of("valid", "same"), "valid", "What is added around the input"),
            BIASED,
            FORMAT,
            *SHARED,
            *WEIGHTED,
        ),
        partial(recur_images, gates),
        positional=2,
        approximated=approximated,
    )


MEMBERS = (
    *(_recurrent(kind, suffix) for kind in GATES for suffix in ("", "Cell", "DropoutWrapper")),
    _images("ConvLSTM2D", 4, ""),
    _images("ConvGRU2D", 3, "Keras has no ConvGRU2D: a GRU whose matrices are convolutions is built"),
)
