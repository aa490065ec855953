"""Connect layers and infer shapes: uses of built-in layers enter, `LayerPlan`s leave.

The output of a layer is the input of the next one, as long as nothing else is said. A body (a macro, a block, the network)
remembers what `Add()` without operands adds: its own input, or what the last LayerNormalization left behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from neural.check.expansion import Group, Node, Parallel, Use
from neural.check.wiring import Wire, elementwise, operands
from neural.layers.layer_type import COMMON, Inferred, ShapeFault, Values, volume
from neural.layers.parameter import UNKNOWN, Given, bound
from neural.plan import InputPlan, LayerPlan, Shape, shape_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neural.check.findings import Findings
    from neural.layers.layer_type import LayerType

MOST_ELEMENTS = 10**10
"""Elements of one layer's output for one sample: 40 GB."""
MOST_PARAMETERS = 10**12
RECURRENT = ("LSTM", "GRU", "SimpleRNN", "Conv")
BODY_ONLY = ("TransformerEncoder", "TransformerDecoder", "Transformer")
"""Layers that may have a block, which takes their place."""


@dataclass
class Body:
    """Hold the state of a macro, a block or the network while its layers are connected."""

    current: Wire
    """The output that the next layer reads."""
    residual: Wire
    """The output that `Add()` without operands adds."""
    norm_first: bool
    """True if the body begins with a LayerNormalization: what it reads is added, else what it gives."""
    ends: tuple[Wire, ...] = ()
    """The ends of the branches before, which the next layer merges."""


@dataclass
class Container:
    """Hold the layers of the network or of one block, which are numbered together."""

    names: dict[str, Wire]
    """Outputs by the names by which layers may refer to them."""
    layers: list[LayerPlan] = field(default_factory=list)


def connect(nodes: Sequence[Node], inputs: Sequence[InputPlan], findings: Findings) -> list[LayerPlan]:
    """Return the layers of a network with inputs, shapes and numbers of parameters."""
    graph = Graph(findings, [Wire(each.name, each.shape) for each in inputs])
    container = Container({wire.name: wire for wire in graph.unread})
    graph.run(nodes, graph.begin(nodes, graph.unread[0]), container)
    return container.layers


class Graph:
    """Connect the layers of one network."""

    def __init__(self, findings: Findings, inputs: list[Wire]) -> None:
        self.findings = findings
        self.unread = list(inputs)
        """The inputs of the network that no layer reads yet."""

    @staticmethod
    def begin(nodes: Sequence[Node], wire: Wire) -> Body:
        """Return the state at the start of a body that reads `wire`."""
        first = _first(nodes)
        return Body(wire, wire, first is not None and first.type.name == "LayerNormalization")

    def run(self, nodes: Sequence[Node], body: Body, container: Container) -> None:
        """Connect nodes in order; `body` then holds the last output."""
        for node in nodes:
            match node:
                case Use():
                    self.use(node, body, container)
                case Group():
                    inner = self.begin(node.nodes, body.current)
                    inner.ends = body.ends
                    self.run(node.nodes, inner, container)
                    body.current, body.ends = inner.current, inner.ends
                case Parallel():
                    self.branches(node, body, container)

    def branches(self, node: Parallel, body: Body, container: Container) -> None:
        """Connect branches, each with the input of its name or with the output before them."""
        ends = []
        for name, nodes in node.branches:
            unread = next((wire for wire in self.unread if wire.name == name), None)
            inner = self.begin(nodes, unread or body.current)
            self.run(nodes, inner, container)
            ends.append(inner.current)
            container.names[name] = inner.current
        body.ends = tuple(ends)
        body.current = ends[0] if len(ends) == 1 else body.current

    # ---------------------------------------------------------------- one layer

    def use(self, use: Use, body: Body, container: Container) -> None:
        """Connect one layer, and make its output the current one."""
        name = f"{use.type.name}_{len(container.layers) + 1}"
        named, given = operands(use, container.names, self.findings)
        values, whole = self.bind(use, given)
        wires = self.inputs(use, values, named, body)
        shapes = tuple(wire.shape for wire in wires if wire.shape is not None)
        before = LayerPlan(name, use.type.name, values, tuple(wire.name for wire in wires), (), 0, 0, use.span)
        before = replace(before, device=use.device)
        plan = None
        if whole and len(shapes) == len(wires):
            plan = self.inferred(use, before, shapes)
        container.layers.append(plan or before)
        wire = Wire(name, plan.shape if plan else None)
        if values.get("name"):
            container.names[str(values["name"])] = wire
        container.names[name] = wire
        for read in wires:
            self.unread = [each for each in self.unread if each.name != read.name]
        if use.type.name == "LayerNormalization":
            body.residual = body.current if body.norm_first else wire
        body.current = wire
        body.ends = ()

    def bind(self, use: Use, given: Sequence[Given]) -> tuple[Mapping[str, Any], bool]:
        """Return the values of the parameters, and True if all of them are known."""
        kind = use.type
        found = bound(kind.name, (*kind.parameters, *COMMON), kind.positional, given)
        for misuse in found.misuses:
            self.findings.misuse(misuse, use.span, use.trail)
        for argument in found.rounded:
            if self.findings.sources.lines[argument.place.line - 1][argument.place.column - 1 :].count("."):
                words = f"{argument.value} is taken as {int(argument.value)}"
                self.findings.note(argument.place, words)
        return found.values, not found.misuses and not any(each is UNKNOWN for each in found.values.values())

    def inputs(self, use: Use, values: Values, named: tuple[Wire, ...], body: Body) -> tuple[Wire, ...]:
        """Return what a layer reads."""
        name = use.type.name
        if named:
            return named
        if len(body.ends) > 1:
            if use.type.merges:
                return body.ends
            count = len(body.ends)
            self.problem(use, f"{name} comes after {count} branches", expected="Add(), Concatenate() or another that merges")
            return (Wire("", None),)
        if name == "Embedding" and self.unread and body.current.name not in {wire.name for wire in self.unread}:
            wire = self.unread[0]
            words = f"{name} reads the input {wire.name}; nothing after it reads the output of {body.current.name}"
            self.findings.note(use.span, words, approximated=True)
            return (wire,)
        if not use.type.merges:
            return (body.current,)
        if elementwise(name):
            return self.other_operand(use, body)
        cross = name == "TransformerDecoder" or values.get("mode") == "cross"
        return self.attended(use, body) if cross else (body.current,)

    def other_operand(self, use: Use, body: Body) -> tuple[Wire, ...]:
        """Return the operands of a merging layer that names none."""
        others = [wire for wire in self.unread if wire.name != body.current.name]
        if others:
            return (body.current, *others)
        if body.residual.name == body.current.name:
            self.problem(use, f"{use.type.name} has nothing to merge", expected="branches before it, or the names of two layers")
            return (Wire("", None),)
        name = body.residual.name or "the input of its block"
        words = f"{use.type.name}() has no operand: it merges the output before it with {name}"
        self.findings.note(use.span, words, approximated=True)
        return (body.current, body.residual)

    def attended(self, use: Use, body: Body) -> tuple[Wire, ...]:
        """Return the input of a cross attention and what it attends to."""
        others = [wire for wire in self.unread if wire.name != body.current.name]
        if others:
            return (body.current, others[0])
        words = f"{use.type.name} has no second input: it attends to its own"
        self.findings.note(use.span, words, approximated=True)
        return (body.current, body.current)

    # ---------------------------------------------------------------- shapes

    def inferred(self, use: Use, plan: LayerPlan, shapes: tuple[Shape, ...]) -> LayerPlan | None:
        """Return the plan with its shape and its parameters, None if there is a problem."""
        try:
            if use.block is not None:
                found = self.with_block(use, plan, shapes[0])
            elif use.type.name == "ResidualConnection":
                raise ShapeFault("needs a block of layers")
            elif use.type.wraps:
                return None  # the missing layer is a problem already
            else:
                found = _plain(use.type, plan, shapes)
        except ShapeFault as fault:
            self.problem(use, f"{use.type.name} {fault}")
            return None
        if found is None:
            return None
        elements = volume(found.shape)
        if elements is not None and elements > MOST_ELEMENTS:
            self.problem(use, f"the output of {use.type.name} has {elements:.3g} elements", expected=f"at most {MOST_ELEMENTS:.0g}")
            return None
        if found.parameter_count > MOST_PARAMETERS:
            words = f"{use.type.name} has {found.parameter_count:.3g} parameters"
            self.problem(use, words, expected=f"at most {MOST_PARAMETERS:.0g}")
            return None
        if use.type.name == "Output" and len(found.shape) > 1:
            words = f"Output gives {shape_text(found.shape)}, one answer for each place: Flatten() before it gives one a sample"
            self.findings.note(use.span, words)
        return found

    def with_block(self, use: Use, plan: LayerPlan, shape: Shape) -> LayerPlan | None:
        """Return a layer with the layers of its block, None if one of those has a problem."""
        name = use.type.name
        if name not in {*BODY_ONLY, "ResidualConnection", "Bidirectional", "TimeDistributed"}:
            raise ShapeFault("takes no block of layers")
        within = shape[1:] if name == "TimeDistributed" else shape
        if name == "TimeDistributed" and len(shape) < 2:
            raise ShapeFault(f"needs an input of (steps, ...), and gets {shape_text(shape)}")
        nodes = use.block or ()
        wire = Wire("", within)
        container = Container({})
        body = self.begin(nodes, wire)
        unread, self.unread = self.unread, []
        self.run(nodes, body, container)
        self.unread = unread
        children = tuple(container.layers)
        if body.current.shape is None:
            return None
        if not children:
            raise ShapeFault("has an empty block")
        if name in BODY_ONLY:
            words = f"{name} with a block: the layers of the block run in its place, and its own parameters are not used"
            self.findings.note(use.span, words, approximated=True)
        return _around(plan, children, shape, body.current.shape)

    def problem(self, use: Use, message: str, *, expected: str = "") -> None:
        self.findings.problem(message, use.span, expected=expected, trail=use.trail)


def _first(nodes: Sequence[Node]) -> Use | None:
    """Return the first layer of nodes, None if they begin with branches."""
    for node in nodes:
        found = _first(node.nodes) if isinstance(node, Group) else node
        if isinstance(found, Use):
            return found
        if isinstance(found, Parallel):
            return None
    return None


def _plain(kind: LayerType, plan: LayerPlan, shapes: tuple[Shape, ...]) -> LayerPlan:
    """Return a layer without a block with what its shape function says."""
    values = plan.parameters
    if kind.name == "Add" and len(shapes) == 2 and shapes[0][:-1] == shapes[1][:-1] and shapes[0] != shapes[1]:
        # A sum of other channels is how public files write a shortcut: as in ResNet, a 1x1 convolution brings it over.
        left, right = shapes[0][-1], shapes[1][-1]
        if left is not None and right is not None and 1 not in {left, right}:
            return replace(plan, parameters={**values, "projection": left}, shape=shapes[0], trainable=left * right)
    found: Inferred = kind.infer(shapes, values)
    return replace(plan, shape=found.shape, trainable=found.trainable, fixed=found.fixed)


# ---------------------------------------------------------------- blocks


def _around(plan: LayerPlan, children: tuple[LayerPlan, ...], given: Shape, inner: Shape) -> LayerPlan:
    """Return the layer around a block; `given` is its input and `inner` the output of its last child."""
    plan = replace(
        plan,
        children=children,
        trainable=sum(each.trainable for each in children),
        fixed=sum(each.fixed for each in children),
    )
    match plan.type:
        case "ResidualConnection":
            return _residual(plan, given, inner)
        case "Bidirectional":
            return _both_ways(plan, inner)
        case "TimeDistributed":
            return replace(plan, shape=(given[0], *inner))
        case _:
            return replace(plan, shape=inner)


def _both_ways(plan: LayerPlan, inner: Shape) -> LayerPlan:
    child = plan.children[0]
    if len(plan.children) > 1 or not child.type.startswith(RECURRENT) or child.type.startswith(("Conv1", "Conv2", "Conv3")):
        raise ShapeFault(f"needs one recurrent layer, such as LSTM(64), and has {child.type}")
    last = inner[-1]
    twice = plan.parameters["merge_mode"] == "concat" and last is not None
    shape = (*inner[:-1], 2 * last) if twice and last is not None else inner
    return replace(plan, shape=shape, trainable=2 * plan.trainable, fixed=2 * plan.fixed)


def _residual(plan: LayerPlan, given: Shape, inner: Shape) -> LayerPlan:
    """Return a sum of the input and the block. A last 1x1 convolution may be what brings the input to the block's shape."""
    if inner == given:
        return replace(plan, shape=given, parameters={**plan.parameters, "projection": None})
    last, main = plan.children[-1], plan.children[-2].shape if len(plan.children) > 1 else given
    if last.type.startswith("Conv") and set(last.parameters.get("kernel_size", ())) == {1}:
        moved = _projected(last, given)
        if moved is not None and moved.shape == main:
            children = (*plan.children[:-1], moved)
            trainable = plan.trainable - last.trainable + moved.trainable
            parameters = {**plan.parameters, "projection": moved.name}
            return replace(plan, children=children, trainable=trainable, shape=main, parameters=parameters)
    raise ShapeFault(
        f"adds its input of {shape_text(given)} to a block that gives {shape_text(inner)}: give the block that shape, or end "
        "it with a Conv2D(..., kernel_size=1) that brings the input to the shape of the layers before"
    )


def _projected(plan: LayerPlan, given: Shape) -> LayerPlan | None:
    """Return a convolution as it is on the input of its block, None if it does not fit there."""
    from neural.layers import LAYERS  # noqa: PLC0415

    try:
        found = LAYERS[plan.type].infer((given,), plan.parameters)
    except ShapeFault:
        return None
    return replace(plan, inputs=("",), shape=found.shape, trainable=found.trainable)
