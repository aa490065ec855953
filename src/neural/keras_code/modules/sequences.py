"""Positions of the steps of a sequence."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops


class PositionalEncoding(keras.Layer):
    """Add sines and cosines of the position to each step."""

    def __init__(self, max_len: int = 5000, dropout: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.max_len, self.dropout = max_len, layers.Dropout(dropout)
        self.supports_masking = True

    def build(self, shape: tuple[int | None, ...]) -> None:
        size = int(shape[-1] or 0)
        angles = np.arange(self.max_len)[:, None] * np.exp(np.arange(0, size, 2) * (-np.log(10000.0) / size))
        self.table = np.zeros((self.max_len, size), "float32")
        self.table[:, 0::2] = np.sin(angles)
        self.table[:, 1::2] = np.cos(angles[:, : size // 2])

    def call(self, x: Any) -> Any:
        return self.dropout(x + ops.convert_to_tensor(self.table, x.dtype)[: ops.shape(x)[1]])

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return shape
