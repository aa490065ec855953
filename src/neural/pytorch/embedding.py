"""Embedding and PositionalEncoding."""

from __future__ import annotations

from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments, unless
from neural.pytorch.weights import first_weights


def embed(use: Use) -> LayerCode:
    """Return a table of vectors."""
    values = use.values
    return LayerCode(
        f"{use.me}({use.x})",
        f"nn.Embedding({arguments(values['input_dim'], values['output_dim'])})",
        weights=first_weights(
            values,
            {"embeddings": f"{use.me}.weight"},
            {"embeddings": (values["input_dim"], values["output_dim"])},
        ),
    )


def encode(use: Use) -> LayerCode:
    """Return sines and cosines of the position, added to the input."""
    values = use.values
    words = arguments(use.channels, max_len=unless(values["max_len"], 5000), dropout=unless(values["dropout"], 0.0))
    return LayerCode(f"{use.me}({use.x})", f"PositionalEncoding({words})", helpers=("PositionalEncoding",))


MEMBERS = (
    LayerWriter("Embedding", embed, "last"),
    LayerWriter("PositionalEncoding", encode, "last", passes_mask=True),
)
