"""A recurrent convolution that Keras lacks."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops


class ConvGRU2D(keras.Layer):
    """Read (steps, height, width, channels) by gated recurrent units, with convolutions in place of matrices."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, int],
        padding: str = "valid",
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        use_bias: bool = True,
        return_sequences: bool = False,
        go_backwards: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.filters, self.padding, self.use_bias = filters, padding, use_bias
        self.kernel_size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        self.activation = keras.activations.get(activation)
        self.recurrent_activation = keras.activations.get(recurrent_activation)
        self.return_sequences, self.go_backwards = return_sequences, go_backwards
        self.input_dropout, self.state_dropout = layers.Dropout(dropout), layers.Dropout(recurrent_dropout)

    def build(self, shape: tuple[int | None, ...]) -> None:
        gates = 3 * self.filters  # reset, update, new
        self.kernel = self.add_weight((*self.kernel_size, shape[-1], gates), "glorot_uniform", name="kernel")
        self.recurrent_kernel = self.add_weight(
            (*self.kernel_size, self.filters, gates), "orthogonal", name="recurrent_kernel"
        )
        self.bias = self.add_weight((gates,), "zeros", name="bias") if self.use_bias else None

    def call(self, x: Any) -> Any:
        x = ops.flip(x, axis=1) if self.go_backwards else x
        x = x * self.input_dropout(ops.ones_like(x[:, :1]))  # the same values in all steps
        steps = [self.project(x[:, step]) for step in range(x.shape[1])]
        state = ops.zeros_like(steps[0][..., : self.filters])
        kept = self.state_dropout(ops.ones_like(state))
        outputs = []
        for step in steps:
            state = self.step(step, state, kept * state)
            outputs.append(state)
        return ops.stack(outputs, axis=1) if self.return_sequences else state

    def project(self, image: Any) -> Any:
        """Return what an image adds to the gates."""
        projected = ops.conv(image, self.kernel, padding=self.padding)
        return projected if self.bias is None else projected + self.bias

    def step(self, projected: Any, state: Any, read: Any) -> Any:
        """Return the next state; `read` is the state with its dropout."""
        gates = 2 * self.filters
        recurrent = ops.conv(read, self.recurrent_kernel[..., :gates], padding="same")
        reset, update = ops.split(self.recurrent_activation(projected[..., :gates] + recurrent), 2, axis=-1)
        inner = ops.conv(reset * read, self.recurrent_kernel[..., gates:], padding="same")
        new = self.activation(projected[..., gates:] + inner)
        return update * state + (1 - update) * new
