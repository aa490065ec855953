"""Copy the weights of a Keras layer into the module that `neural` built for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from neural import LayerPlan


def put(target: Any, values: np.ndarray) -> None:
    """Write an array into a parameter or a buffer of the same shape."""
    assert tuple(target.shape) == values.shape, (tuple(target.shape), values.shape)
    with torch.no_grad():
        target.copy_(torch.from_numpy(np.ascontiguousarray(values)))


def kernel(values: np.ndarray) -> np.ndarray:
    """Return the kernel of a convolution with the outputs first."""
    return np.moveaxis(values, (-1, -2), (0, 1))


def gates(values: np.ndarray) -> np.ndarray:
    """Return the gates of a GRU in torch's order: Keras has update, reset, new."""
    update, reset, new = np.split(values, 3, axis=-1)
    return np.concatenate([reset, update, new], axis=-1)


def put_recurrent(kind: str, module: Any, values: Sequence[np.ndarray]) -> None:
    """Copy kernel, recurrent kernel and bias."""
    order = gates if kind == "GRU" else (lambda each: each)
    put(module.weight_ih, order(values[0]).T)
    put(module.weight_hh, order(values[1]).T)
    if len(values) < 3:
        return
    bias = order(values[2])
    if bias.ndim == 2:
        put(module.bias, bias[0])
        put(module.bias_hh, bias[1])
    else:
        put(module.bias, bias)


def put_attention(module: Any, values: Sequence[np.ndarray]) -> None:
    """Copy the four projections, whose kernels have an axis for the heads in Keras."""
    names = ("query", "key", "value", "output")
    for place, name in enumerate(names):
        weight, bias = values[2 * place], values[2 * place + 1]
        flat = weight.reshape(-1, weight.shape[-1]) if name == "output" else weight.reshape(weight.shape[0], -1)
        put(getattr(module, name).weight, flat.T)
        put(getattr(module, name).bias, bias.reshape(-1))


def put_layer(layer: LayerPlan, module: nn.Module | Any, values: Sequence[np.ndarray]) -> None:
    """Copy the weights of one layer."""
    kind = layer.type
    if kind in {"Dense", "Output"}:
        put(module.weight, values[0].T)
        put(module.bias, values[1])
    elif kind.startswith("Depthwise"):
        depth = np.moveaxis(values[0], (-2, -1), (0, 1))
        put(module.weight, depth.reshape(-1, 1, *depth.shape[2:]))
        put(module.bias, values[1])
    elif kind.startswith("Separable"):
        depth = np.moveaxis(values[0], (-2, -1), (0, 1))
        put(module[0].weight, depth.reshape(-1, 1, *depth.shape[2:]))
        put(module[1].weight, kernel(values[1]))
        put(module[1].bias, values[2])
    elif re.match(r"Conv\dD", kind):
        put(module.weight, kernel(values[0]))
        put(module.bias, values[1])
    elif kind == "ConvLSTM2D":
        put(module.weight_ih, kernel(values[0]))
        put(module.weight_hh, kernel(values[1]))
        put(module.bias, values[2])
    elif kind.endswith("Normalization"):
        put(module.weight, values[0])
        put(module.bias, values[1])
        if len(values) > 2:
            put(module.running_mean, values[2])
            put(module.running_var, values[3])
    elif kind == "Embedding":
        put(module.weight, values[0])
    elif kind == "MultiHeadAttention":
        put_attention(module, values)
    elif kind == "Bidirectional":
        half = len(values) // 2
        put_recurrent(layer.children[0].type, module.ahead, values[:half])
        put_recurrent(layer.children[0].type, module.back, values[half:])
    else:
        put_recurrent(kind, module, values)
