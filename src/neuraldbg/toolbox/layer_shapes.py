"""The kind of a layer, by the names and the shapes of its parameters: causes compare layers of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONVOLUTIONS = {3: "Conv1d", 4: "Conv2d", 5: "Conv3d"}
_GAINS = ("gamma", "scale")


class Shaped(NamedTuple):
    """One parameter as it was given."""

    given_name: str
    """Name that the program has for it: "kernel"."""
    shape: tuple[int, ...]
    framework: str
    """Name of its framework: "torch", "jax"."""


def layer_type(parameters: Mapping[str, Shaped]) -> tuple[str, dict[str, float | str | bool]]:
    """Return the type of a layer, as torch calls it, and its sizes, by its parameters (their names as in the run).
    ``Layer`` if they do not say it.

    >>> layer_type({"weight": Shaped("kernel", (8, 16), "jax"), "bias": Shaped("bias", (16,), "jax")})
    ('Linear', {'in_features': 8, 'out_features': 16})
    """
    weight = parameters.get("weight")
    if any(name.startswith(("recurrent_", "weight_hh")) for name in parameters):
        return "RNN", {}
    if weight is None:
        return "Layer", {}
    shape = weight.shape
    if len(shape) <= 1:
        return ("Norm", {}) if weight.given_name in _GAINS else ("Layer", {})
    if weight.given_name.startswith("embedding"):
        return "Embedding", {"num_embeddings": shape[0], "embedding_dim": shape[-1]}
    first = _outputs_first(weight, parameters.get("bias"))
    out, into = (shape[0], shape[1]) if first else (shape[-1], shape[-2])
    if len(shape) == 2:
        return "Linear", {"in_features": into, "out_features": out}
    if len(shape) in _CONVOLUTIONS:
        return _CONVOLUTIONS[len(shape)], {"in_channels": into, "out_channels": out}
    return "Layer", {}


def _outputs_first(weight: Shaped, bias: Shaped | None) -> bool:
    """Return True if the first axis of a weight has the outputs, as in torch; else the last one has."""
    count = bias.shape[0] if bias is not None and len(bias.shape) == 1 else None
    if count in (weight.shape[0], weight.shape[-1]) and weight.shape[0] != weight.shape[-1]:
        return count == weight.shape[0]
    return weight.framework == "torch"
