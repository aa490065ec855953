"""Attention: MultiHeadAttention, Attention, and the encoder and decoder of a transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.layers.layer_type import BIASED, WEIGHTED, Inferred, LayerType, ShapeFault, Values, sequence
from neural.layers.parameter import ACTIVATION, ANYTHING, COUNT, FLAG, FRACTION, POSITIVE, Parameter, one_of, optional

if TYPE_CHECKING:
    from neural.plan import Shape

HEADS = Parameter("num_heads", COUNT, 8, "Number of heads", aliases=("heads",))
CAUSAL = Parameter("causal", FLAG, False, "Each step sees only the steps before it", aliases=("use_causal_mask",))
UNUSED = (
    Parameter("embed_dim", ANYTHING, None, "Not used: the input has the size", aliases=("d_model",)),
    Parameter("batch_first", ANYTHING, None, "Not used: the batch comes first"),
)
MODE = Parameter("mode", one_of("self", "cross"), "self", 'What is attended to: "cross" reads a second input')


def attend_by_heads(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the shape of the queries; the weights are those of Keras."""
    size, other = sequence(shapes[0]), sequence(shapes[-1])
    heads, key = values["num_heads"], values["key_dim"]
    value = values["value_dim"] or key
    biases = heads * (2 * key + value) + size if values["use_bias"] else 0
    return Inferred(shapes[0], heads * (size * key + other * (key + value) + value * size) + biases)


def attend(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the shape of the queries; only the scale is trained."""
    sequence(shapes[0])
    return Inferred(shapes[0], 1 if values["use_scale"] else 0)


def _size(shape: Shape, values: Values) -> int:
    size, heads = sequence(shape), values["num_heads"]
    if size % heads:
        raise ShapeFault(f"has {heads} heads, which do not divide the {size} features of its input")
    return size


def _block(size: int, attentions: int, values: Values) -> int:
    """Return the parameters of one block of torch.nn: attentions, two linear layers, and a norm after each of them."""
    linear = 2 * size * values["ff_dim"] + values["ff_dim"] + size
    return int(attentions * (4 * size * size + 4 * size) + linear + (attentions + 1) * 2 * size)


def encode(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the shape of the input, with the weights of torch.nn.TransformerEncoderLayer."""
    return Inferred(shapes[0], values["num_layers"] * _block(_size(shapes[0], values), 1, values))


def decode(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the shape of the first input, with the weights of torch.nn.TransformerDecoderLayer."""
    size = _size(shapes[0], values)
    if sequence(shapes[-1]) != size:
        raise ShapeFault(f"has {size} features, and what it attends to has {shapes[-1][-1]}")
    return Inferred(shapes[0], values["num_layers"] * _block(size, 2, values))


TRANSFORMER = (
    HEADS,
    Parameter("ff_dim", COUNT, 512, "Size of the layer between its two linear ones", aliases=("d_ff",)),
    Parameter("dropout", FRACTION, 0.1, "Share of values that are dropped", aliases=("rate",)),
    Parameter("num_layers", COUNT, 1, "Blocks after one another"),
    Parameter("activation", ACTIVATION, "relu", "The activation between its two linear layers"),
    Parameter("use_attention_mask", FLAG, False, "Leave out empty places, whose id is 0"),
    Parameter("epsilon", POSITIVE, 1e-6, "Added to the variance in its norms"),
    CAUSAL,
    *UNUSED,
)

MEMBERS = (
    LayerType(
        "MultiHeadAttention",
        "Lets each step read the others, by several heads.",
        (
            HEADS,
            Parameter("key_dim", COUNT, 64, "Size of the queries and keys of one head"),
            Parameter("value_dim", optional(COUNT), None, "Size of the values of one head, key_dim if it is None"),
            Parameter("dropout", FRACTION, 0.0, "Share of the weights of attention that are dropped"),
            BIASED,
            MODE,
            CAUSAL,
            Parameter("return_attention_scores", FLAG, False, "Not used: a layer has one output"),
            Parameter("use_attention_mask", FLAG, False, "Leave out empty places, whose id is 0"),
            *UNUSED,
            *WEIGHTED,
        ),
        attend_by_heads,
        positional=2,
        merges=True,
    ),
    LayerType(
        "Attention",
        "Lets each step read the others, by dot products.",
        (
            Parameter("use_scale", FLAG, False, "Train the scale of the products"),
            Parameter("dropout", FRACTION, 0.0, "Share of the weights of attention that are dropped"),
            Parameter("return_attention_scores", FLAG, False, "Not used: a layer has one output"),
            CAUSAL,
            MODE,
        ),
        attend,
        merges=True,
    ),
    LayerType("TransformerEncoder", "Attention, then two linear layers, each with a norm.", TRANSFORMER, encode),
    LayerType(
        "TransformerDecoder",
        "Attention to itself and to a second input, then two linear layers, each with a norm.",
        TRANSFORMER,
        decode,
        merges=True,
    ),
    LayerType(
        "Transformer",
        "An encoder of a transformer.",
        TRANSFORMER,
        encode,
        approximated="Transformer says not which half of a transformer it is: an encoder is built",
    ),
)
