"""The boxes and edges of a picture: a `Plan` enters, a `Flow` leaves."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from neural.layers import FAMILIES, LAYERS
from neural.layers.layer_type import COMMON
from neural.layers.parameter import REQUIRED, value_words
from neural.plan import shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neural.plan import InputPlan, LayerPlan, PartPlan, Plan

LINE = 36
"""Characters of a line in a box."""
MOST_LINES = 2
"""Lines of parameters in a box; all of them stand in its tooltip and in the table."""
INPUT, LAYER, BLOCK, LOSS, BEGIN, SUM = "input", "layer", "block", "loss", "begin", "sum"

_FAMILIES = {member.name: family for family in FAMILIES for member in import_module(f"neural.layers.{family}").MEMBERS}


@dataclass(frozen=True)
class Node:
    """Hold one box of a picture, or the dot or the circle at which a block begins or ends."""

    name: str
    """The name by which edges refer to it, unique in its flow."""
    kind: str
    """`input`, `layer`, `block`, `loss`, `begin` or `sum`."""
    title: str = ""
    lines: tuple[str, ...] = ()
    """The lines below the title."""
    hint: str = ""
    """All of its parameters, for a tooltip."""
    family: str = ""
    """The family of the layer, "" if it is none."""
    inner: Flow | None = None
    """The layers of its block, None without one."""


@dataclass(frozen=True)
class Flow:
    """Hold the boxes of a network or a block in the order of the data, and the edges between them by name."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]


def flow_of(plan: Plan) -> Flow:
    """Return the data flow of a network: its inputs, layers and loss."""
    nodes = [*map(_input, plan.inputs), *map(_layer, plan.layers), _loss(plan)]
    edges = [*_edges(plan.layers), (plan.output, LOSS)]
    return Flow(tuple(nodes), tuple(edges))


def _edges(layers: Sequence[LayerPlan]) -> list[tuple[str, str]]:
    """Return what layers read; a layer that reads an output twice has one edge."""
    return [(name, layer.name) for layer in layers for name in dict.fromkeys(layer.inputs)]


def _input(given: InputPlan) -> Node:
    words = "ids" if given.ids else "numbers"
    title = "input" if given.name == "input" else f"input {given.name}"
    return Node(given.name, INPUT, title, (f"{shape_text(given.shape)} of {words}",))


def _loss(plan: Plan) -> Node:
    optimizer = plan.optimizer
    rate = plan.schedule.type if plan.schedule is not None else optimizer.parameters.get("learning_rate")
    hint = f"{part_words(plan.loss)}\n{part_words(optimizer)}"
    return Node(LOSS, LOSS, f"loss: {plan.loss.type}", (f"{optimizer.type}, learning rate {rate}",), hint)


def part_words(part: PartPlan) -> str:
    """Return a loss or an optimizer with the parameters that say most: those that are not 0."""
    shown = ", ".join(f"{key}={value_words(each)}" for key, each in part.parameters.items() if each)
    return f"{part.type}({shown})" if shown else part.type


def _layer(layer: LayerPlan) -> Node:
    words = parameter_words(layer)
    result = shape_text(layer.shape)
    if layer.parameter_count:
        result += f" \N{MIDDLE DOT} {counted(layer.parameter_count, 'parameter')}"
    name = layer.parameters.get("name")
    title = f"{layer.name} \N{MIDDLE DOT} {name}" if name else layer.name
    if layer.device:
        title += f" @ {layer.device}"
    hint = "\n".join(each for each in (layer.name, words, result) if each)
    node = Node(layer.name, LAYER, _cut(title), (*_wrapped(words), result), hint, family_of(layer.type))
    if not layer.children:
        return node
    return replace(node, kind=BLOCK, inner=_block(layer))


def _block(layer: LayerPlan) -> Flow:
    """Return the flow within a block. Its input is a dot, and a residual block ends with a sum."""
    children = layer.children
    nodes, edges = [_layer(child) for child in children], _edges(children)
    residual = layer.type == "ResidualConnection"
    if len(children) == 1 and not residual:
        return Flow(tuple(nodes), tuple(each for each in edges if each[0]))
    begin = Node("", BEGIN)
    if not residual:
        return Flow((begin, *nodes), tuple(edges))
    projection = layer.parameters.get("projection")
    way = [child.name for child in children if child.name != projection]
    ends = (way[-1] if way else "", projection or "")
    return Flow((begin, *nodes, Node(SUM, SUM, "+")), (*edges, *((end, SUM) for end in dict.fromkeys(ends))))


def parameter_words(layer: LayerPlan) -> str:
    """Return the parameters of a layer that its type needs, that come first, or that differ from their defaults."""
    kind = LAYERS.get(layer.type)
    if kind is None:
        return ""
    shown = []
    for place, parameter in enumerate((*kind.parameters, *COMMON)):
        value = layer.parameters.get(parameter.name)
        if parameter.name == "name" or value is None or (parameter.name, value) == ("activation", "linear"):
            continue
        if place < kind.positional or parameter.default is REQUIRED or value != parameter.default:
            shown.append(f"{parameter.name}={value_words(value)}")
    return ", ".join(shown)


def family_of(kind: str) -> str:
    """Return the family of a type of layer: the file of `neural.layers` that holds it."""
    return _FAMILIES.get(kind, "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _wrapped(words: str) -> list[str]:
    lines = textwrap.wrap(words, LINE, break_on_hyphens=False)
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], _cut(f"{lines[MOST_LINES - 1]} {lines[MOST_LINES]}")]
    return lines


def _cut(words: str) -> str:
    return words if len(words) <= LINE else words[: LINE - 1].rstrip(" ,") + "\N{HORIZONTAL ELLIPSIS}"
