"""The settings that explain a first difference: a Difference and the different settings enter, those that fit leave.

A setting explains a difference at the place where it acts: a learning rate that of an update, the padding of a layer
that of the layer's output. Another place may follow from it later, but is not explained by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns.comparison import Difference, Setting

_STEP = ("learning rate", "optimizer", "weight decay", "momentum", "schedule", "gradient scaler")
_GRADIENT = (
    "gradient clipping",
    "backward passes a step",
    "parameters frozen",
    "loss scale",
    "gradient scaler",
    "autocast",
    "loss reduction",
)
_COMPUTED = ("training mode", "autocast", "dtype of parameters", "compiled", "device", "parameters tied")
_ACTS: dict[str, tuple[str, ...]] = {
    "input": ("batch size", "input"),
    "param": ("seed", "dtype of parameters"),
    "activation": _COMPUTED,
    "op": ("loss", "targets"),
    "loss": ("loss", "targets"),
    "output_grad": (*_GRADIENT, *_COMPUTED),
    "param_grad": (*_GRADIENT, *_COMPUTED),
    "update": (*_STEP, *_GRADIENT, "parameters in no optimizer"),
}
"""Prefixes of the names of the settings that act where a site of each kind is computed."""
_WEAK = (
    "loss operations",
    "loss fed by",
    "layer parameters",
    "optimizer groups",
    "optimizer parameters",
    "optimizer decoupled_weight_decay",
)
"""Prefixes of settings that follow from another one: they explain a difference if no other setting does."""
_TOLD = {
    "update": "weights and gradients are equal as far as they were read, the optimizer's settings are not",
    "activation": "all before it is equal as far as it was read, the settings are not",
    "loss": "inputs, weights and outputs are equal as far as they were read, the loss function is not",
    "op": "inputs, weights and outputs are equal as far as they were read, the loss function is not",
}
"""Meaning of a first difference that different settings explain, by its kind."""


def explaining(first: Difference, settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Return the settings that act at the place of the first difference, and not later, the most telling first."""
    early = [one for one in settings if one.step <= first.last and _acts(one, first)]
    strong = [one for one in early if not one.name.startswith(_WEAK)]
    return tuple(strong or early)


def reading_of(first: Difference) -> str:
    """Return the meaning of a first difference that different settings explain, if all before it was compared."""
    return _TOLD.get(first.kind, first.reading)


def _acts(setting: Setting, first: Difference) -> bool:
    if setting.layer is not None:
        own = first.layer is not None and f"{first.layer}.".startswith(f"{setting.layer}.")
        return own and first.kind in ("param", "activation", "output_grad")
    if setting.name.startswith("parameters tied"):
        return first.kind == "activation" and f"{first.layer}." in f"{setting.one} {setting.other}"
    return setting.name.startswith(_ACTS.get(first.kind, ()))
