"""A model's inputs as rows of features, and as tokens: tensors in, small numpy arrays out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from neuraldbg.capture.readers.data.label_predictability import FEATURES
from neuraldbg.capture.readers.data.token_alignment import SHORT
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.nested_tensors import seen

SAMPLE = 256
"""Samples of a batch that are read, and numbers of its targets, at most."""
_NO_INPUT = ("label", "target", "mask")
"""Words in the names of inputs that a model needs for its loss only."""


def features(inputs: Any, *, on_device: bool) -> tuple[np.ndarray[Any, Any] | None, np.ndarray[Any, Any] | None]:
    """Return (features (N, d) of the tensors given to a model, tokens (B, T)), each None if there are none.

    ``on_device`` allows a synchronisation. Labels and masks among the inputs are no features.
    """
    found: list[Tensor] = []
    tokens: Tensor | None = None
    size: int | None = None
    with torch.no_grad():
        for name, x in seen(inputs):
            # Tensors that do not have one row per sample end the search: rows of features would not match targets.
            if x.dim() == 0 or x.numel() == 0 or x.is_complex():
                continue
            if any(word in name for word in _NO_INPUT):
                continue
            if placement.lies(x) and not on_device:
                return None, None
            size = int(x.shape[0]) if size is None else size
            if x.shape[0] != size or (x.dim() == 1 and not x.is_floating_point()):
                return None, None  # ids, or tensors whose first dimension is not the samples
            if x.is_floating_point():
                found.append(_reduced(x.detach()))
            elif x.dim() == 2 and x.shape[1] >= SHORT and tokens is None and x.dtype != torch.bool:
                tokens = x.detach()[:SAMPLE].cpu()
                found.append(F.one_hot(x.detach()[:SAMPLE].long() % 128, 128).sum(1).float())
            if len(found) > 4:
                return None, None
    # Features of several inputs are joined only if all have the same samples.
    if not found or any(len(f) != len(found[0]) for f in found):
        return None, operation.numbers(tokens) if tokens is not None else None
    table = torch.cat(found, 1)[:, :FEATURES].cpu().numpy().astype(np.float32)
    return table, operation.numbers(tokens) if tokens is not None else None


def _reduced(x: Tensor) -> Tensor:
    """Return at most ``FEATURES`` features of each sample: images averaged over patches, long rows over stretches."""
    x = x[:SAMPLE].float()
    if x.dim() == 4 and x.shape[1] <= 4 and min(x.shape[2:]) >= 8:
        x = F.adaptive_avg_pool2d(x, 8)
    x = x.reshape(len(x), -1)
    if x.shape[1] > FEATURES:
        width = -(-x.shape[1] // FEATURES)
        x = x[:, : x.shape[1] // width * width].reshape(len(x), -1, width).mean(2)
    return x
