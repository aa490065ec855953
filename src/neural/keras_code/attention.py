"""Attention, and the encoder and decoder of a transformer."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.keras_code.weights import weight_words
from neural.layer_writing import NotWritten
from neural.pytorch.layer_code import arguments


def _places(use: Use) -> str | None:
    """Return the variable that is true where what is attended to has no empty place, if the layer asks for it."""
    if not use.values.get("use_attention_mask"):
        return None
    places = use.inputs[-1].places
    if places is None:
        raise NotWritten("has use_attention_mask=true, and no Embedding before it says which places are empty")
    return places


def attend_by_heads(use: Use) -> LayerCode:
    """Return a MultiHeadAttention; with one input it attends to itself."""
    values, places = use.values, _places(use)
    if values["return_attention_scores"]:
        raise NotWritten("has return_attention_scores=true, and a layer has one output here")
    if use.backend == "jax" and values["value_dim"] not in {None, values["key_dim"]}:
        # Keras 3.15.1 gives both to jax.nn.dot_product_attention, which reshapes one as the other.
        raise NotWritten("has a value_dim other than key_dim, which Keras cannot run on JAX")
    words = arguments(
        values["num_heads"],
        values["key_dim"],
        **given(values, value_dim=None, dropout=0.0, use_bias=True),
        **weight_words(values, "kernel", "bias"),
    )
    mask = f"ops.expand_dims({places}, 1)" if places else None
    causal = True if values["causal"] else None
    reads = arguments(use.x, use.inputs[-1].text, attention_mask=mask, use_causal_mask=causal)
    return LayerCode("layers.MultiHeadAttention", words, reads)


def attend(use: Use) -> LayerCode:
    """Return an Attention, whose keys are the values."""
    values = use.values
    if values["return_attention_scores"]:
        raise NotWritten("has return_attention_scores=true, and a layer has one output here")
    inputs = f"[{use.x}, {use.inputs[-1].text}]"
    reads = arguments(inputs, use_causal_mask=True if values["causal"] else None)
    return LayerCode("layers.Attention", arguments(**given(values, use_scale=False, dropout=0.0)), reads)


def _block(use: Use, kind: str, reads: str) -> LayerCode:
    values = use.values
    words = arguments(
        values["num_heads"],
        values["ff_dim"],
        **given(values, dropout=0.1, activation="relu", epsilon=1e-6, causal=False),
    )
    return LayerCode(kind, words, reads, (kind,), blocks=values["num_layers"])


def encode(use: Use) -> LayerCode:
    """Return encoder blocks, which are those of torch.nn."""
    return _block(use, "TransformerEncoder", arguments(use.x, mask=_places(use)))


def decode(use: Use) -> LayerCode:
    """Return decoder blocks, which read a second input, or their own if there is none."""
    return _block(use, "TransformerDecoder", arguments(use.x, use.inputs[-1].text, memory_mask=_places(use)))


MEMBERS = (
    LayerWriter("MultiHeadAttention", attend_by_heads, keeps_steps=True),
    LayerWriter("Attention", attend, keeps_steps=True),
    LayerWriter("TransformerEncoder", encode, keeps_steps=True),
    LayerWriter("Transformer", encode, keeps_steps=True),
    LayerWriter("TransformerDecoder", decode, keeps_steps=True),
)
