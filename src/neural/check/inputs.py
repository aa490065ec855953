"""Check the section `input`, and take its shapes as the first layer needs them.

Public files mean several things by a shape: with or without the batch, ids with the size of their vectors beside them,
channels first in `shape(1, 28, 28)`. What is not as it is written becomes a note.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neural.check.evaluation import Called, Scope, evaluate
from neural.check.expansion import Group, Parallel, Use
from neural.check.findings import ValueFault
from neural.language.tree import Settings
from neural.layers.layer_type import COMMON, ShapeFault
from neural.layers.parameter import LARGEST, bound, value_words
from neural.plan import InputPlan, Shape, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neural.check.expansion import Node
    from neural.check.findings import Findings
    from neural.errors import Span
    from neural.language.tree import Section, Value

MOST_AXES = 8
EXAMPLE = "(28, 28, 1)"


def inputs_of(section: Section, nodes: Sequence[Node], findings: Findings) -> tuple[InputPlan, ...]:
    """Return the inputs of a network whose layers are `nodes`, () if one of them has a problem."""
    named = list(_named(section, findings))
    if len({name for name, _ in named}) < len(named):
        findings.problem("two inputs have the same name", section.span)
        return ()
    found = []
    for name, value in named:
        try:
            shape, batch = _shape(value, findings)
        except ValueFault as fault:
            findings.fault(fault)
            return ()
        ids = any(use.type.name == "Embedding" for use in _uses(nodes))
        found.append(InputPlan(name, _as_needed(shape, batch, nodes, value.span, findings), ids))
    if not found:
        findings.problem("input has no shape", section.span, expected=f"input: {EXAMPLE}")
    return tuple(found)


def _named(section: Section, findings: Findings) -> Iterator[tuple[str, Value]]:
    several = len(section.values) > 1
    for place, value in enumerate(section.values):
        if isinstance(value, Settings):
            yield from ((each.name, each.value) for each in value.items)
        else:
            yield f"input_{place + 1}" if several else "input", value
    del findings


def _shape(value: Value, findings: Findings) -> tuple[Shape, bool]:
    """Return the shape without the batch, and True if a None for the batch was left out."""
    found: Any = evaluate(value, Scope(findings, {}))
    first = False
    if isinstance(found, Called):
        if found.name.lower() not in {"shape", "input"} or any(each.name for each in found.given):
            raise ValueFault(f"{found.name}(...) is no shape", value.span, EXAMPLE)
        found, first = tuple(each.value for each in found.given), found.name.lower() == "shape"
    sizes = found if isinstance(found, tuple) else (found,)
    for size in sizes:
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST):
            shown = size.name if isinstance(size, Called) else value_words(size)
            raise ValueFault(f"{shown} is no size of an input", value.span, f"a shape, such as {EXAMPLE}")
    if not sizes or len(sizes) > MOST_AXES:
        raise ValueFault(f"a shape of {len(sizes)} axes", value.span, f"a shape, such as {EXAMPLE}")
    batch = len(sizes) > 1 and sizes[0] is None
    shape: Shape = sizes[1:] if batch else sizes
    if first and len(shape) == 3 and shape[0] in {1, 3} and shape[2] not in {1, 3, 4}:
        shape = (*shape[1:], shape[0])
        words = f"shape(...) has the channels first: {shape_text(shape)} is taken, with the channels last"
        findings.note(value.span, words, approximated=True)
    return shape, batch


def _uses(nodes: Sequence[Node]) -> Iterator[Use]:
    """Return all layers of nodes, without those of blocks."""
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        match node:
            case Use():
                yield node
            case Group():
                waiting.extend(reversed(node.nodes))
            case Parallel():
                waiting.extend(each for _, branch in reversed(node.branches) for each in reversed(branch))


def _as_needed(shape: Shape, batch: bool, nodes: Sequence[Node], span: Span, findings: Findings) -> Shape:
    """Return the shape that the first layer can take, if it can take another one only."""
    first = next(_uses(nodes), None)
    if first is None:
        return shape
    values = bound(first.type.name, (*first.type.parameters, *COMMON), first.type.positional, first.given).values
    if first.type.name == "Embedding" and len(shape) == 2 and shape[-1] == values["output_dim"]:
        words = (
            f"Embedding reads ids, and {shape_text(shape)} has the size of its vectors, too: "
            f"ids of shape {shape_text(shape[:1])} are taken"
        )
        findings.note(span, words, approximated=True)
        return shape[:1]
    # A leading None is the batch, unless the first layer needs an axis more than the others.
    if not batch or first.type.wraps or first.block is not None:
        return shape
    try:
        first.type.infer((shape,), values)
    except ShapeFault:
        longer = (None, *shape)
        try:
            first.type.infer((longer,), values)
        except (ShapeFault, TypeError):
            return shape
        words = f"{first.type.name} needs one axis more: None is taken for a length, beside the batch"
        findings.note(span, words, approximated=True)
        return longer
    except TypeError:  # a parameter that is a problem already
        return shape
    return shape


def renamed(inputs: tuple[InputPlan, ...], read_by_embedding: set[str]) -> tuple[InputPlan, ...]:
    """Return the inputs, of which those that an Embedding reads are ids."""
    return tuple(replace(each, ids=each.name in read_by_embedding) for each in inputs)
