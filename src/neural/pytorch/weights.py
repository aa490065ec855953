"""First weights, frozen weights and regularizers as statements."""

from __future__ import annotations

import re
from math import sqrt
from typing import TYPE_CHECKING, Any

from neural.layer_writing import NotWritten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neural.plan import LayerPlan

INITIALIZERS = {
    "glorot_normal": "nn.init.xavier_normal_({w})",
    "glorot_uniform": "nn.init.xavier_uniform_({w})",
    "he_normal": 'nn.init.kaiming_normal_({w}, nonlinearity="relu")',
    "he_uniform": 'nn.init.kaiming_uniform_({w}, nonlinearity="relu")',
    "lecun_normal": 'nn.init.kaiming_normal_({w}, nonlinearity="linear")',
    "lecun_uniform": 'nn.init.kaiming_uniform_({w}, nonlinearity="linear")',
    "normal": "nn.init.normal_({w}, std=0.05)",
    "ones": "nn.init.ones_({w})",
    "orthogonal": "nn.init.orthogonal_({w})",
    "random_normal": "nn.init.normal_({w}, std=0.05)",
    "random_uniform": "nn.init.uniform_({w}, -0.05, 0.05)",
    "truncated_normal": "nn.init.trunc_normal_({w}, std=0.05, a=-0.1, b=0.1)",
    "uniform": "nn.init.uniform_({w}, -0.05, 0.05)",
    "zeros": "nn.init.zeros_({w})",
}
"""Keras's initializers without arguments."""
CALLS = {
    "constant": ("nn.init.constant_", {"value": 0.0}),
    "randomnormal": ("nn.init.normal_", {"mean": 0.0, "stddev": 0.05}),
    "randomuniform": ("nn.init.uniform_", {"minval": -0.05, "maxval": 0.05}),
    "truncatednormal": ("nn.init.trunc_normal_", {"mean": 0.0, "stddev": 0.05}),
}
"""Those with arguments: the function of torch, and the arguments of Keras in their order."""
USUAL = {
    "bias": "zeros",
    "beta": "zeros",
    "depthwise": "glorot_uniform",
    "embeddings": "uniform",
    "gamma": "ones",
    "kernel": "glorot_uniform",
    "moving_mean": "zeros",
    "moving_variance": "ones",
    "pointwise": "glorot_uniform",
    "recurrent": "orthogonal",
}
"""What Keras takes without an initializer; `initialize` or the module itself gives it."""
WAYS = {"l1": ((0.01, 0.0), ("l1",)), "l2": ((0.0, 0.01), ("l2",)), "l1l2": ((0.0, 0.0), ("l1", "l2"))}
"""Factors of l1 and l2 without arguments, and the names of the arguments."""


CUT = 0.87962566103423978
"""Standard deviation of a normal distribution that is cut at two: Keras divides by it (its `VarianceScaling`)."""


def first_weights(
    values: Any, names: dict[str, str], fans: Mapping[str, tuple[int, int]] | None = None
) -> tuple[str, ...]:
    """Return statements for the initializers that are not the usual ones; `names` maps `kernel` to an expression, and
    `fans` to the numbers of its inputs and outputs as Keras counts them.
    """
    found = []
    for name, weight in names.items():
        given = values.get(f"{name}_initializer", USUAL[name])
        word = given.lower() if isinstance(given, str) else given
        if word is None or word == USUAL[name]:
            continue
        scaled = _scaled(given, weight, *fans[name]) if fans is not None and name in fans else ""
        if scaled:
            found.append(scaled)
        elif word in INITIALIZERS:
            found.append(INITIALIZERS[word].format(w=weight))
        elif statement := _with_arguments(given, weight):
            found.append(statement)
        else:
            shown = repr(given) if isinstance(given, str) else getattr(given, "name", str(given)) + "(...)"
            known = ", ".join([*INITIALIZERS, *CALLS])
            raise NotWritten(f"has the {name}_initializer {shown}, which is not built: one of {known}")
    return tuple(found)


def _scaled(given: Any, weight: str, inputs: int, outputs: int) -> str:
    """Return the statement of an initializer whose scale follows from the size of the weights, "" for any other."""
    arguments = [each for each in getattr(given, "given", ()) if each.name != "seed"]
    word = str(getattr(given, "name", given)).lower().replace("_", "")
    match = re.fullmatch(r"(glorot|he|lecun)(normal|uniform)", word)
    if match is None or arguments:
        return ""
    variance = {"glorot": 2 / (inputs + outputs), "he": 2 / inputs, "lecun": 1 / inputs}[match[1]]
    if match[2] == "uniform":
        limit = f"{sqrt(3 * variance):.6g}"
        return f"nn.init.uniform_({weight}, -{limit}, {limit})"
    std = sqrt(variance) / CUT
    return f"nn.init.trunc_normal_({weight}, std={std:.6g}, a=-{2 * std:.6g}, b={2 * std:.6g})"


def _with_arguments(given: Any, weight: str) -> str:
    """Return the statement of an initializer that is called, "" if there is none of that name with such arguments."""
    name = getattr(given, "name", "").lower().replace("_", "")
    plain = {each.replace("_", ""): each for each in INITIALIZERS}
    arguments = [each for each in getattr(given, "given", ()) if each.name != "seed"]  # of one layer: not used
    if not name or (name in plain and not arguments):
        return INITIALIZERS[plain[name]].format(w=weight) if name else ""
    function, defaults = CALLS.get(name, ("", {}))
    values = dict(defaults)
    for place, each in enumerate(arguments):
        key = each.name or ([*defaults][place] if place < len(defaults) else "")
        if key not in values or isinstance(each.value, bool) or not isinstance(each.value, (int, float)):
            return ""
        values[key] = float(each.value)
    numbers = [repr(value) for value in values.values()]
    if name == "truncatednormal":  # as Keras cuts it: at two standard deviations
        mean, std = values["mean"], values["stddev"]
        numbers += [f"a={mean - 2 * std!r}", f"b={mean + 2 * std!r}"]
    return f"{function}({', '.join([weight, *numbers])})" if function else ""


def refuse_unbuilt(layer: LayerPlan) -> None:
    """Raise NotWritten for parameters of weights that are not built: constraints, and regularizers of an output."""
    for name, value in layer.parameters.items():
        if value is not None and (name.endswith("_constraint") or name == "activity_regularizer"):
            raise NotWritten(f"has {name}={getattr(value, 'name', value)!r}, which is not built")


def penalties(layer: LayerPlan, path: str) -> list[str]:
    """Return the terms that the regularizers of a layer add to the loss."""
    found = []
    weights = {"kernel": "weight", "bias": "bias", "embeddings": "weight"}
    for name, value in layer.parameters.items():
        if value is None or not name.endswith("_regularizer"):
            continue
        weight = name.removesuffix("_regularizer")
        if weight not in weights or layer.type not in {"Dense", "Output", "Embedding", "Conv1D", "Conv2D", "Conv3D"}:
            raise NotWritten(f"has a {name}, which is built for kernel and bias of Dense, Output and Conv only")
        for power, factor in zip((1, 2), regularizer_factors(name, value), strict=True):
            if factor:
                norm = "abs()" if power == 1 else "square()"
                found.append(f"{factor!r} * {path}.{weights[weight]}.{norm}.sum()")
    return found


def regularizer_factors(name: str, value: Any) -> tuple[float, float]:
    """Return the factors of the absolute values and of the squares."""
    word = (value if isinstance(value, str) else getattr(value, "name", "")).lower().replace("_", "")
    if word not in WAYS:
        raise NotWritten(f"has the {name} {value!r}, which is not built: one of l1, l2, l1_l2")
    default, names = WAYS[word]
    if word == "l1l2" and isinstance(value, str):
        default = (0.01, 0.01)
    found = dict(zip(("l1", "l2"), default, strict=True))
    for place, argument in enumerate(getattr(value, "given", ())):
        key = argument.name or names[min(place, len(names) - 1)]
        if (
            key not in {"l1", "l2", "l"}
            or isinstance(argument.value, bool)
            or not isinstance(argument.value, (int, float))
        ):
            raise NotWritten(f"has the {name} {word} with the argument {key}={argument.value!r}: l1 and l2 are numbers")
        found[names[0] if key == "l" else key] = float(argument.value)
    return found["l1"], found["l2"]
