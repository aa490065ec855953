"""The encoder and the decoder of torch.nn as layers of Keras, and squeeze and excitation."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops


def shown_places(mask: Any) -> Any:
    """Return a mask of steps as one of attention; a sample of empty places alone shows all of them."""
    if mask is None:
        return None
    mask = ops.cast(mask, "bool")
    return ops.expand_dims(ops.logical_or(mask, ops.logical_not(ops.any(mask, axis=1, keepdims=True))), 1)


class TransformerEncoder(keras.Layer):
    """Let each step read the others, then change each by two linear layers; a norm comes after each of both."""

    def __init__(
        self,
        num_heads: int,
        ff_dim: int,
        dropout: float = 0.1,
        activation: str = "relu",
        epsilon: float = 1e-6,
        causal: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.num_heads, self.ff_dim, self.rate = num_heads, ff_dim, dropout
        self.activation, self.epsilon, self.causal = activation, epsilon, causal
        self.supports_masking = True

    def build(self, shape: tuple[int | None, ...], *_: Any) -> None:
        size = int(shape[-1] or 0)
        self.attention = layers.MultiHeadAttention(self.num_heads, size // self.num_heads, dropout=self.rate)
        self.attention.build(shape, shape)
        self.inner, self.outer = layers.Dense(self.ff_dim, activation=self.activation), layers.Dense(size)
        self.inner.build(shape)
        self.outer.build((*shape[:-1], self.ff_dim))
        self.norms = [layers.LayerNormalization(epsilon=self.epsilon) for _ in range(2)]
        for norm in self.norms:
            norm.build(shape)
        self.dropouts = [layers.Dropout(self.rate) for _ in range(3)]

    def call(self, x: Any, mask: Any = None) -> Any:
        read = self.attention(x, x, attention_mask=shown_places(mask), use_causal_mask=self.causal)
        x = self.norms[0](x + self.dropouts[0](read))
        return self.norms[1](x + self.dropouts[2](self.outer(self.dropouts[1](self.inner(x)))))

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return shape


class TransformerDecoder(keras.Layer):
    """Let each step read the others, then a memory, then change each by two linear layers; a norm comes after each."""

    def __init__(
        self,
        num_heads: int,
        ff_dim: int,
        dropout: float = 0.1,
        activation: str = "relu",
        epsilon: float = 1e-6,
        causal: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.num_heads, self.ff_dim, self.rate = num_heads, ff_dim, dropout
        self.activation, self.epsilon, self.causal = activation, epsilon, causal
        self.supports_masking = True

    def build(self, x_shape: tuple[int | None, ...], memory_shape: tuple[int | None, ...]) -> None:
        size = int(x_shape[-1] or 0)
        self.own, self.cross = (
            layers.MultiHeadAttention(self.num_heads, size // self.num_heads, dropout=self.rate) for _ in range(2)
        )
        self.own.build(x_shape, x_shape)
        self.cross.build(x_shape, memory_shape)
        self.inner, self.outer = layers.Dense(self.ff_dim, activation=self.activation), layers.Dense(size)
        self.inner.build(x_shape)
        self.outer.build((*x_shape[:-1], self.ff_dim))
        self.norms = [layers.LayerNormalization(epsilon=self.epsilon) for _ in range(3)]
        for norm in self.norms:
            norm.build(x_shape)
        self.dropouts = [layers.Dropout(self.rate) for _ in range(4)]

    def call(self, x: Any, memory: Any, x_mask: Any = None, memory_mask: Any = None) -> Any:
        read = self.own(x, x, attention_mask=shown_places(x_mask), use_causal_mask=self.causal)
        x = self.norms[0](x + self.dropouts[0](read))
        read = self.cross(x, memory, attention_mask=shown_places(memory_mask))
        x = self.norms[1](x + self.dropouts[1](read))
        return self.norms[2](x + self.dropouts[3](self.outer(self.dropouts[2](self.inner(x)))))

    def compute_mask(self, x: Any, previous_mask: Any = None) -> Any:
        del x
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def compute_output_shape(
        self, x_shape: tuple[int | None, ...], memory_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        del memory_shape
        return x_shape


class SqueezeExcitation(keras.Layer):
    """Weigh each channel by a small network of the means of all channels."""

    def __init__(self, ratio: int = 16, **options: Any) -> None:
        super().__init__(**options)
        self.ratio = ratio

    def build(self, shape: tuple[int | None, ...]) -> None:
        size = int(shape[-1] or 0)
        middle = max(1, size // self.ratio)
        self.squeeze = layers.Dense(middle, activation="relu")
        self.excite = layers.Dense(size, activation="sigmoid")
        self.squeeze.build((None, size))
        self.excite.build((None, middle))

    def call(self, x: Any) -> Any:
        space = tuple(range(1, len(x.shape) - 1))
        means = ops.mean(x, axis=space, keepdims=True) if space else x
        return x * self.excite(self.squeeze(means))
