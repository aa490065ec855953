"""Embedding and PositionalEncoding."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.keras_code.weights import weight_words
from neural.pytorch.layer_code import arguments


def embed(use: Use) -> LayerCode:
    """Return a table of vectors."""
    values = use.values
    words = {**given(values, mask_zero=False), **weight_words(values, "embeddings")}
    return LayerCode("layers.Embedding", arguments(values["input_dim"], values["output_dim"], **words))


def encode(use: Use) -> LayerCode:
    """Return sines and cosines of the position, added to the input."""
    words = arguments(**given(use.values, max_len=5000, dropout=0.0))
    return LayerCode("PositionalEncoding", words, helpers=("PositionalEncoding",))


MEMBERS = (LayerWriter("Embedding", embed), LayerWriter("PositionalEncoding", encode, keeps_steps=True))
