"""The inputs of a network, and the arrays that they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.pytorch.network_class import input_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neural.plan import InputPlan, LayerPlan, Plan

TARGETS = "y"
"""Name of the array of targets."""


def keyed(plan: Plan) -> list[tuple[str, InputPlan]]:
    """Return each input with the name of its array, as the compiled model reads it: `x` if there is only one."""
    if len(plan.inputs) == 1:
        return [("x", plan.inputs[0])]
    return [(input_name(plan, each), each) for each in plan.inputs]


def vocabulary(plan: Plan, given: InputPlan) -> int | None:
    """Return the number of ids that every Embedding of an input takes, None if no Embedding reads it."""
    sizes = [size for layer in plan.layers if given.name in layer.inputs for size in _sizes(layer)]
    if not sizes:  # a layer in between that changes no value
        sizes = [int(layer.parameters["input_dim"]) for layer in plan.walk() if layer.type == "Embedding"]
    return min(sizes, default=None) if given.ids else None


def _sizes(layer: LayerPlan) -> Iterator[int]:
    if layer.type == "Embedding":
        yield int(layer.parameters["input_dim"])
    for child in layer.children:
        if "" in child.inputs or len(layer.children) == 1:  # it reads the input of its block
            yield from _sizes(child)
