"""Note outputs that cannot work with the loss: a plan enters, notes with what to write instead are added.

They are notes and no errors: such a network can be built and trained, and learns badly or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neural.check.findings import Findings
    from neural.plan import LayerPlan, Plan

BINARY = "binary_crossentropy"
SPARSE = "sparse_categorical_crossentropy"
CROSSENTROPIES = (BINARY, "categorical_crossentropy", SPARSE)
DENSE = ("Dense", "Output")
NO_PROBABILITIES = (
    "elu", "gelu", "leaky_relu", "linear", "log_softmax", "mish", "relu", "relu6", "selu", "silu", "softsign", "tanh",
)  # fmt: skip
"""Activations whose values are no probabilities, also if a loss divides them by their sum."""
_PASSING = ("Dropout", "GaussianDropout", "AlphaDropout", "GaussianNoise", "BatchNormalization")
"""Layers that hand on what they read, one value for each."""


def note_outputs(plan: Plan, findings: Findings) -> None:
    """Add a note for an output that the loss cannot use, and for a softmax between layers."""
    last = plan.layers[-1]
    if _activates(last):
        words = _unfit(last, plan)
        if words:
            findings.note(last.span, words)
    by_name = {layer.name: layer for layer in plan.layers}
    for layer in plan.layers:
        if layer.type in DENSE:
            for before in _sources(layer, by_name):
                if before.type in DENSE and before.parameters.get("activation") == "softmax":
                    words = f'{before.type} has a softmax, which is for the last layer: write "relu" in a layer between'
                    findings.note(before.span, words)


def _activates(layer: LayerPlan) -> bool:
    return layer.type in (*DENSE, "Activation") or layer.type.startswith("Conv")


def _sources(layer: LayerPlan, by_name: dict[str, LayerPlan]) -> Iterator[LayerPlan]:
    """Return the layers whose outputs a layer reads, without those that only hand them on."""
    for name in layer.inputs:
        before = by_name.get(name)
        while before is not None and before.type in _PASSING:
            before = by_name.get(before.inputs[0])
        if before is not None:
            yield before


def _unfit(last: LayerPlan, plan: Plan) -> str:
    """Return why the loss cannot use an output, and what to write instead; "" if it can."""
    activation, units, loss = last.parameters.get("activation"), last.shape[-1], plan.loss.type
    who, binary = last.type, loss == BINARY
    if activation == "softmax" and units == 1:
        instead = '"sigmoid" for two classes, or "linear" for a number'
        if loss in CROSSENTROPIES and not binary:
            instead = f'"sigmoid" and the loss "{BINARY}" for two classes, or a unit for each class'
        return f"the softmax of one unit of {who} is always 1: write {instead}"
    if loss not in CROSSENTROPIES or plan.loss.parameters.get("from_logits"):
        return ""
    right = "sigmoid" if binary else "softmax"
    if activation in NO_PROBABILITIES:
        logits = f", or the loss {loss}(from_logits=true)" if activation == "linear" else ""
        return f'{loss} needs probabilities, which {activation} of {who} does not give: write "{right}"{logits}'
    if units == 1 and not binary:
        return f'{loss} needs a unit for each class, and {who} has one: write the loss "{BINARY}" for two classes'
    if activation == "sigmoid" and loss == SPARSE:
        return f'{loss} needs probabilities whose sum is 1, which sigmoid of {who} does not give: write "softmax"'
    if activation == "softmax" and binary:
        return (
            f'{BINARY} takes each of the {units} units of {who} for a question of its own: write the loss "{SPARSE}" '
            '(or "categorical_crossentropy") for one class of several, or "sigmoid" if a sample may have several'
        )
    return ""
