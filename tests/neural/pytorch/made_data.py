"""Data for a plan, made of random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from neural import Plan


def made_data(plan: Plan, samples: int = 8, length: int = 7, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return inputs and targets under the names that a built model reads; a size of None becomes `length`."""
    order = torch.Generator().manual_seed(seed)
    words = [layer.parameters["input_dim"] for layer in plan.walk() if layer.type == "Embedding"]
    data = {}
    for each in plan.inputs:
        shape = (samples, *(size or length for size in each.shape))
        name = "x" if len(plan.inputs) == 1 else each.name
        ids = torch.randint(1 if min(words, default=0) > 1 else 0, min(words, default=2), shape, generator=order)
        data[name] = ids if each.ids else torch.randn(shape, generator=order)
    shape = (samples, *(size or length for size in plan.layers[-1].shape))
    classes = torch.randint(0, shape[-1], shape[:-1], generator=order)
    if plan.loss.type == "sparse_categorical_crossentropy":
        data["y"] = classes
    elif plan.loss.type == "categorical_crossentropy":
        data["y"] = torch.nn.functional.one_hot(classes, shape[-1])
    elif plan.loss.type == "binary_crossentropy":
        data["y"] = torch.randint(0, 2, shape, generator=order).float()
    else:
        data["y"] = torch.rand(shape, generator=order)
    return data
