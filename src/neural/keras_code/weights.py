"""Initializers, regularizers and constraints as arguments of a layer of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neural.keras_code.layer_code import literal
from neural.layer_writing import NotWritten
from neural.layers.layer_type import INITIALIZERS as USUAL
from neural.pytorch.weights import regularizer_factors

if TYPE_CHECKING:
    from collections.abc import Mapping

INITIALIZERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "constant": ("Constant", ("value",)),
    "glorot_normal": ("GlorotNormal", ("seed",)),
    "glorot_uniform": ("GlorotUniform", ("seed",)),
    "he_normal": ("HeNormal", ("seed",)),
    "he_uniform": ("HeUniform", ("seed",)),
    "identity": ("Identity", ("gain",)),
    "lecun_normal": ("LecunNormal", ("seed",)),
    "lecun_uniform": ("LecunUniform", ("seed",)),
    "normal": ("RandomNormal", ("mean", "stddev", "seed")),
    "ones": ("Ones", ()),
    "orthogonal": ("Orthogonal", ("gain", "seed")),
    "random_normal": ("RandomNormal", ("mean", "stddev", "seed")),
    "random_uniform": ("RandomUniform", ("minval", "maxval", "seed")),
    "truncated_normal": ("TruncatedNormal", ("mean", "stddev", "seed")),
    "uniform": ("RandomUniform", ("minval", "maxval", "seed")),
    "variance_scaling": ("VarianceScaling", ("scale", "mode", "distribution", "seed")),
    "zeros": ("Zeros", ()),
}
CONSTRAINTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "max_norm": ("MaxNorm", ("max_value", "axis")),
    "min_max_norm": ("MinMaxNorm", ("min_value", "max_value", "rate", "axis")),
    "non_neg": ("NonNeg", ()),
    "unit_norm": ("UnitNorm", ("axis",)),
}
"""Names in a file; the class of Keras, and its arguments in their order."""


def weight_words(values: Mapping[str, Any], *weights: str) -> dict[str, str]:
    """Return the arguments for the weights that Keras's layer has; those of others that are given are refused."""
    found = {}
    for name, value in values.items():
        weight, _, what = name.rpartition("_")
        if what not in {"initializer", "regularizer", "constraint"} or value is None:
            continue
        usual = USUAL.get(weight, "glorot_uniform") if what == "initializer" else None
        if value == usual or (isinstance(value, str) and value.lower() == usual):
            continue
        if weight != "activity" and weight not in weights:
            raise NotWritten(f"has a {name}, which Keras's layer has not")
        known = {"initializer": INITIALIZERS, "constraint": CONSTRAINTS}.get(what)
        found[name] = _made(name, what, value, known) if known else _regularizer(name, value)
    return found


def _made(name: str, what: str, value: Any, known: dict[str, tuple[str, tuple[str, ...]]]) -> str:
    """Return the expression of an initializer or a constraint, which a file names or calls."""
    word = value if isinstance(value, str) else getattr(value, "name", "")
    plain = word.lower().replace("_", "")
    key = next((each for each, (made, _) in known.items() if plain in {each.replace("_", ""), made.lower()}), "")
    arguments = getattr(value, "given", ())
    if not key:
        shown = literal(value) if isinstance(value, str) else f"{word or value}(...)"
        raise NotWritten(f"has the {name} {shown}, which is not built: one of {', '.join(known)}")
    if not arguments and key != "constant":
        return literal(key)
    made, names = known[key]
    words = []
    for place, each in enumerate(arguments):
        argument = each.name or (names[place] if place < len(names) else "")
        if argument not in names or not isinstance(each.value, (int, float, str)):
            raise NotWritten(f"has the {name} {word} with the argument {argument or place + 1}, which is not known")
        words.append(f"{argument}={literal(each.value)}")
    return f"keras.{what}s.{made}({', '.join(words)})"


def _regularizer(name: str, value: Any) -> str:
    """Return the expression of a regularizer, with its factors as numbers."""
    one, two = regularizer_factors(name, value)
    words = [f"{key}={factor!r}" for key, factor in (("l1", one), ("l2", two)) if factor]
    return f"keras.regularizers.L1L2({', '.join(words)})" if len(words) != 1 else _single(words[0])


def _single(word: str) -> str:
    key, _, factor = word.partition("=")
    return f"keras.regularizers.{key.upper()}({factor})"
