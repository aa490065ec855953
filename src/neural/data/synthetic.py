"""Made-up data that can be learned: the targets follow from the inputs by a rule drawn by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neural.data.samples import Found

if TYPE_CHECKING:
    from neural.data.samples import Array
    from neural.plan import Plan

SAMPLES = 512
LENGTH = 16
"""Size of an axis that only the data tell."""
_MOST = 2**27
"""Numbers of all inputs at most: fewer samples are made of larger ones."""
_CROSS = ("categorical_crossentropy", "sparse_categorical_crossentropy")


def made(plan: Plan, seed: int) -> Found:
    """Return inputs of the network's shapes, and targets as its loss takes them."""
    draw = np.random.default_rng(seed)
    each = sum(int(np.prod([size or LENGTH for size in one.shape])) for one in plan.inputs)
    count = max(8, min(SAMPLES, _MOST // max(each, 1)))
    words = min((int(layer.parameters["input_dim"]) for layer in plan.walk() if layer.type == "Embedding"), default=2)
    inputs: dict[str, Array] = {}
    for one in plan.inputs:
        shape = (count, *(size or LENGTH for size in one.shape))
        ids, numbers = draw.integers(0, words, shape), draw.standard_normal(shape, np.float32)
        inputs[one.name] = ids if one.ids else numbers
    open_axes = any(None in one.shape for one in plan.inputs)
    notes = ["these data are made up: they say nothing about a model but whether it can be trained"]
    notes += [f"axes whose size only the data tell have {LENGTH}"] * open_axes
    targets = _targets(plan, inputs, draw, words)
    return Found(inputs, targets, "made-up data", synthetic=True, notes=tuple(notes))


def _targets(plan: Plan, inputs: dict[str, Array], draw: np.random.Generator, words: int) -> Array:
    shape = tuple(size or LENGTH for size in plan.layers[-1].shape)
    if shape == tuple(size or LENGTH for size in plan.inputs[0].shape) and plan.loss.type not in _CROSS:
        first: Array = next(iter(inputs.values())).astype(np.float32)  # an autoencoder
        return np.asarray(1 / (1 + np.exp(-first))) if plan.loss.type == "binary_crossentropy" else first
    scores = _scores(inputs, shape, draw, words)
    if plan.loss.type in _CROSS:
        return np.asarray(scores.argmax(axis=-1))
    if plan.loss.type == "binary_crossentropy":
        return np.asarray(scores > 0, np.float32)
    return np.asarray(scores / max(float(scores.std()), 1e-6))


def _scores(inputs: dict[str, Array], shape: tuple[int, ...], draw: np.random.Generator, words: int) -> Array:
    """Return numbers of the output's shape by a rule drawn by chance: for each step of a sequence from that step alone,
    since a recurrent layer has not seen the later ones.
    """
    first = next(iter(inputs.values()))
    count = len(first)
    if len(shape) > 1 and all(array.shape[1:2] == shape[:1] for array in inputs.values()):
        rows = [array.reshape(count * shape[0], -1) for array in inputs.values()]
        signal = np.concatenate([_features(array, words) for array in rows], axis=1)
        shape = shape[1:]
    else:
        signal = np.concatenate([_features(array, words) for array in inputs.values()], axis=1)
    rule = draw.standard_normal((signal.shape[1], int(np.prod(shape)))) / np.sqrt(signal.shape[1])
    scores: Array = (signal @ rule).astype(np.float32).reshape(count, -1, *shape)
    return scores if scores.shape[1] > 1 else scores[:, 0]


def _features(array: Array, words: int) -> Array:
    """Return at most 64 numbers of each sample, of usual scale."""
    flat: Array = array.reshape(len(array), -1).astype(np.float32)
    if array.dtype.kind in "iu":
        flat = 2 * flat / max(words - 1, 1) - 1
    every = -(-flat.shape[1] // 64)
    return flat[:, : 64 * every : every]
