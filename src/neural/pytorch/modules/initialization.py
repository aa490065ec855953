"""The first weights of Keras."""

from __future__ import annotations

from torch import nn


def initialize(module: nn.Module) -> None:
    """Begin as Keras does: Glorot's uniform weights, biases of 0, embeddings within 0.05."""
    convolutions = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    if isinstance(module, (nn.Linear, *convolutions)):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.uniform_(module.weight, -0.05, 0.05)
