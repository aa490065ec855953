"""Made-up data that can be learned: the targets follow from the inputs by a rule drawn by chance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neural.data.input_names import keyed, vocabulary
from neural.data.memory import MOST
from neural.data.samples import Found
from neural.errors import DataUnfit

if TYPE_CHECKING:
    from neural.data.samples import Array
    from neural.plan import Plan

SAMPLES = 512
LENGTH = 16
"""Size of an axis that only the data tell."""
_CLASSES = 64
"""The rule chooses among so many classes at most: a language model has too many words for one rule each."""
_FEATURES, _MEANINGS, _WORDS, _OWN_PLACES = 64, 8, 4096, 16
"""Numbers of a sample, of a word, words, and places of the output that have a rule of their own, at most."""
_CROSS = ("categorical_crossentropy", "sparse_categorical_crossentropy")


def made(plan: Plan, seed: int) -> Found:
    """Return inputs of the network's shapes, and targets as its loss takes them."""
    draw = np.random.default_rng(seed)
    count = _count(plan)
    shapes = {key: (count, *(size or LENGTH for size in each.shape)) for key, each in keyed(plan)}
    again = _is_autoencoder(plan)
    inputs: dict[str, Array] = {}
    for key, each in keyed(plan):
        words = vocabulary(plan, each)
        if words is not None:  # 0 is often an empty place
            inputs[key] = draw.integers(min(1, words - 1), words, shapes[key])
        elif again and _range(plan) == "share":
            inputs[key] = draw.random(shapes[key], np.float32)
        else:
            inputs[key] = draw.standard_normal(shapes[key], np.float32)
    notes = ["these data are made up: they say nothing about a model but whether it can be trained"]
    if any(None in each.shape for each in plan.inputs):
        notes.append(f"axes whose size only the data tell have {LENGTH}")
    if count < SAMPLES:
        notes.append(f"{count} samples are made, as each is large")
    if again:
        notes.append("the targets are the inputs, as of an autoencoder")
        return Found(inputs, next(iter(inputs.values())), "made-up data", synthetic=True, notes=tuple(notes))
    targets = _targets(plan, inputs, draw, count)
    return Found(inputs, targets, "made-up data", synthetic=True, notes=tuple(notes))


def _count(plan: Plan) -> int:
    """Return the number of samples: fewer of large ones, for which inputs, outputs and one-hot targets have room."""
    output = math.prod(size or LENGTH for size in plan.layers[-1].shape)
    sizes = [math.prod(size or LENGTH for size in each.shape) for each in plan.inputs]
    count = min(SAMPLES, MOST // 4 // (8 * (sum(sizes) + output)))
    needed = math.ceil(2 / max(1 - float(plan.training["validation_split"]), 1e-3))
    if not count:
        raise DataUnfit(f"a sample of {plan.name} has {sum(sizes) + output:,} numbers, too many to make some up")
    return max(count, min(needed, SAMPLES))


def _is_autoencoder(plan: Plan) -> bool:
    shape = tuple(size or LENGTH for size in plan.layers[-1].shape)
    alone = len(plan.inputs) == 1 and not plan.inputs[0].ids and plan.loss.type not in _CROSS
    return alone and shape == tuple(size or LENGTH for size in plan.inputs[0].shape) and shape != (1,)


def _range(plan: Plan) -> str:
    """Return the numbers that a network can give and its loss can take: `share` from 0 to 1, `signed`, ..."""
    activation = str(plan.layers[-1].parameters.get("activation"))
    match plan.loss.type, activation:
        case "kl_divergence", _:
            return "distribution"
        case "binary_crossentropy", _:
            return "share"
        case (("hinge" | "squared_hinge"), _):
            return "label"
        case "poisson", _:
            return "positive"
        case _, "softmax":
            return "distribution"
        case _, "sigmoid" | "hard_sigmoid":
            return "share"
        case _, "tanh" | "softsign":
            return "signed"
        case _, "relu" | "softplus" | "exponential" | "relu6":
            return "positive"
    return "any"


def _targets(plan: Plan, inputs: dict[str, Array], draw: np.random.Generator, count: int) -> Array:
    shape = tuple(size or LENGTH for size in plan.layers[-1].shape)
    scores = _scores(plan, inputs, draw, count, min(shape[-1], _CLASSES) if plan.loss.type in _CROSS else shape[-1])
    if plan.loss.type in _CROSS:
        return np.asarray(scores.argmax(axis=-1))
    if plan.loss.type == "binary_crossentropy":
        return np.asarray(scores > 0, np.float32)
    scores = np.asarray(scores / max(float(scores.std()), 1e-6), np.float32)
    match _range(plan):
        case "share":
            return np.asarray(1 / (1 + np.exp(-scores)))
        case "signed":
            return np.asarray(np.tanh(scores))
        case "positive":
            return np.asarray(np.exp(scores.clip(-3, 3)))
        case "label":
            return np.asarray(np.sign(scores) + (scores == 0), np.float32)
        case "distribution":
            powers = np.exp(scores.clip(-10, 10))
            return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
    return scores


def _scores(plan: Plan, inputs: dict[str, Array], draw: np.random.Generator, count: int, width: int) -> Array:
    """Return scores of the output's shape with `width` on the last axis, which follow from the inputs in one way.

    If the output has the first axes of an input, as a sequence has, each place follows from the same place of that.
    """
    axes = tuple(size or LENGTH for size in plan.layers[-1].shape[:-1])
    words = [vocabulary(plan, each) for _, each in keyed(plan)]
    for array, size in zip(inputs.values(), words, strict=True):
        if axes and array.shape[1 : 1 + len(axes)] == axes:
            signal = _signal(array.reshape(count * math.prod(axes), -1), size, draw)
            return np.asarray((signal @ _rule(signal, width, draw)).reshape(count, *axes, width))
    pairs = zip(inputs.values(), words, strict=True)
    signal = np.concatenate([_signal(array.reshape(count, -1), size, draw) for array, size in pairs], axis=1)
    places = math.prod(axes)
    own = min(places, _OWN_PLACES)
    scores = (signal @ _rule(signal, own * width, draw)).reshape(count, own, width)
    return np.asarray(scores[:, np.arange(places) % own].reshape(count, *axes, width))


def _rule(signal: Array, width: int, draw: np.random.Generator) -> Array:
    return np.asarray(draw.standard_normal((signal.shape[1], width)) / math.sqrt(signal.shape[1]), np.float32)


def _signal(flat: Array, words: int | None, draw: np.random.Generator) -> Array:
    """Return some numbers of each row, of usual scale: of ids the sums of what their words say, whatever the order."""
    if words is None:
        every = -(-flat.shape[1] // _FEATURES)
        return np.asarray(flat[:, ::every], np.float32)
    meanings = draw.choice(np.array([-1, 1], np.float32), (min(words, _WORDS), _MEANINGS))
    sums = np.zeros((len(flat), _MEANINGS), np.float32)
    for column in range(flat.shape[1]):
        sums += meanings[flat[:, column] % len(meanings)]
    return sums / np.float32(math.sqrt(flat.shape[1]))
