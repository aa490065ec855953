"""Connect layers and infer shapes: uses of built-in layers enter, `LayerPlan`s leave.

The output of a layer is the input of the next one, as long as nothing else is said. A body (a macro, a block, the
network) remembers what `Add()` without operands adds: its own input, or what the last LayerNormalization left behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from neural.check.blocks import around
from neural.check.expansion import NOWHERE, Group, Node, Parallel, Use
from neural.check.unused_values import unused
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
    normed: bool = False
    """True after a LayerNormalization."""
    ends: tuple[Wire, ...] = ()
    """The ends of the branches before, which the next layer merges."""
    squeezed: Wire | None = None
    """The image that a GlobalAveragePooling of this body reads."""
    outer: bool = False
    """True for the network itself, whose merging layers may read inputs that nothing read so far."""


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
    body = graph.begin(nodes, graph.unread[0])
    body.outer = True
    graph.run(nodes, body, container)
    graph.merged(nodes, body)
    if graph.memory is not None and not any(graph.memory.name in layer.inputs for layer in container.layers):
        words = f'nothing reads the output of {graph.memory.name}: no layer with mode="cross" comes after it'
        findings.note(graph.memory_span, words, approximated=True)
    return container.layers


class Graph:
    """Connect the layers of one network, and infer their shapes."""

    def __init__(self, findings: Findings, inputs: list[Wire]) -> None:
        self.findings = findings
        self.names = tuple(wire.name for wire in inputs)
        self.unread = list(inputs)
        """The inputs of the network that no layer reads yet."""
        self.memory: Wire | None = None
        """The end of a sequence after which an Embedding reads the next input: what a decoder attends to."""
        self.memory_span = NOWHERE

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

    def merged(self, nodes: Sequence[Node], body: Body) -> None:
        """Make a problem of branches with nothing after them."""
        last = nodes[-1] if nodes else None
        while isinstance(last, Group) and last.nodes:
            last = last.nodes[-1]
        if len(body.ends) > 1 and isinstance(last, Parallel):
            words = "Add(), Concatenate() or another layer that merges them"
            self.findings.problem(
                f"{len(body.ends)} branches end without a layer after them", last.span, expected=words
            )

    # ---------------------------------------------------------------- one layer

    def use(self, use: Use, body: Body, container: Container) -> None:
        """Connect one layer, and make its output the current one."""
        # Arguments first: the mode of an attention, or the names of operands, say what is read.
        named, given = operands(use, container.names, self.findings)
        values, whole = self.bind(use, given)
        wires = self.inputs(use, values, named, body, container)
        shapes = tuple(wire.shape for wire in wires if wire.shape is not None)
        if use.type.name == "Add" and not named and not body.ends and wires[1:] == (body.residual,):
            values = {**values, "projection": None}
        # A gate may have been put in between, so the name comes after the inputs.
        name = f"{use.type.name}_{len(container.layers) + 1}"
        before = LayerPlan(name, use.type.name, values, tuple(wire.name for wire in wires), (), 0, 0, use.span)
        before = replace(before, device=use.device)
        plan = None
        if whole and len(shapes) == len(wires):
            plan = self.inferred(use, before, shapes)
            for words in unused(use, values, shapes[0]) if plan else ():
                self.findings.note(use.span, words)
        container.layers.append(plan or before)
        # What comes after may read it as the current output, by its name, or as what a sum adds.
        wire = Wire(name, plan.shape if plan else None)
        if values.get("name"):
            container.names[str(values["name"])] = wire
        container.names[name] = wire
        for read in wires:
            self.unread = [each for each in self.unread if each.name != read.name]
        if use.type.name.startswith("GlobalAveragePooling"):
            body.squeezed = body.current
        if use.type.name == "LayerNormalization":
            body.residual = body.current if body.norm_first else wire
            body.normed = True
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

    def inputs(
        self, use: Use, values: Values, named: tuple[Wire, ...], body: Body, container: Container
    ) -> tuple[Wire, ...]:
        """Return what a layer reads."""
        name = use.type.name
        # What the file says comes before what is only meant.
        if named:
            return named
        if len(body.ends) > 1:
            if use.type.merges:
                return body.ends
            count = len(body.ends)
            self.problem(
                use, f"{name} comes after {count} branches", expected="Add(), Concatenate() or another that merges"
            )
            return (Wire("", None),)
        # An Embedding in the middle begins another sequence: it cannot read numbers.
        if name == "Embedding" and self.unread and body.current.name not in {wire.name for wire in self.unread}:
            wire = self.unread[0]
            self.findings.note(use.span, f"{name} reads the input {wire.name}, as nothing else does", approximated=True)
            self.memory, self.memory_span = body.current, use.span
            body.residual = wire
            return (wire,)
        if name == "Embedding" and body.current.name not in {*self.names, ""}:
            self.problem(
                use, f"{name} reads ids, and gets the output of {body.current.name}", expected="an input before it"
            )
            return (Wire("", None),)
        if not use.type.merges:
            return (self.excited(use, values, body, container),)
        if elementwise(name):
            return self.other_operand(use, body)
        cross = name == "TransformerDecoder" or values.get("mode") == "cross"
        return self.attended(use, body) if cross else (body.current,)

    def excited(self, use: Use, values: Values, body: Body, container: Container) -> Wire:
        """Return the current output. A gate of the channels of an image is multiplied with it first.

        Public files write squeeze and excitation as pooling, two Dense layers and the next convolution.
        """
        gate, image, last = body.current, body.squeezed, container.layers[-1] if container.layers else None
        if image is None or image.shape is None or gate.shape != image.shape[-1:] or last is None:
            return gate
        if (
            last.parameters.get("activation") != "sigmoid"
            or use.block is not None
            or not _takes(use, values, image.shape)
        ):
            return gate
        if _takes(use, values, gate.shape):
            return gate
        name = f"Multiply_{len(container.layers) + 1}"
        words = (
            f"{use.type.name} cannot read the {last.name} before it: {image.name} times {last.name} is taken ({name})"
        )
        self.findings.note(use.span, words, approximated=True)
        merged = LayerPlan(name, "Multiply", {"gate": True}, (image.name, gate.name), image.shape, 0, 0, use.span)
        container.layers.append(merged)
        return Wire(name, image.shape)

    def other_operand(self, use: Use, body: Body) -> tuple[Wire, ...]:
        """Return the operands of a merging layer that names none."""
        others = [wire for wire in self.unread if wire.name != body.current.name]
        if others and body.outer:
            return (body.current, *others)
        if body.residual.name == body.current.name:
            self.problem(
                use, f"{use.type.name} has nothing to merge", expected="branches before it, or the names of two layers"
            )
            return (Wire("", None),)
        added = "the input of its macro or block"
        if body.normed:
            added = f"{'the input' if body.norm_first else 'the output'} of the last LayerNormalization"
        words = f"{use.type.name}() has no operand: it merges the output before it with {added}"
        self.findings.note(use.span, words, approximated=True)
        return (body.current, body.residual)

    def attended(self, use: Use, body: Body) -> tuple[Wire, ...]:
        """Return the input of a cross attention and what it attends to."""
        others = [wire for wire in self.unread if wire.name != body.current.name]
        if self.memory is not None or others:
            return (body.current, self.memory or others[0])
        words = f"{use.type.name} has no second input: it attends to its own"
        self.findings.note(use.span, words, approximated=True)
        return (body.current, body.current)

    # ---------------------------------------------------------------- shapes

    def inferred(self, use: Use, plan: LayerPlan, shapes: tuple[Shape, ...]) -> LayerPlan | None:
        """Return the plan with its shape and its parameters, None if there is a problem."""
        try:
            if use.block is not None or use.type.name == "ResidualConnection":
                found = self.with_block(use, plan, shapes[0])
            elif use.type.wraps:
                return None  # the missing layer is a problem already
            else:
                found = _plain(use.type, plan, shapes)
        except ShapeFault as fault:
            self.problem(use, f"{use.type.name} {fault}")
            return None
        if found is None:
            return None
        # Larger ones would fail much later, without a line of the file.
        elements = volume(found.shape)
        if elements is not None and elements > MOST_ELEMENTS:
            self.problem(
                use,
                f"the output of {use.type.name} has {elements:.3g} elements",
                expected=f"at most {MOST_ELEMENTS:.0g}",
            )
            return None
        if found.parameter_count > MOST_PARAMETERS:
            words = f"{use.type.name} has {found.parameter_count:.3g} parameters"
            self.problem(use, words, expected=f"at most {MOST_PARAMETERS:.0g}")
            return None
        if use.type.name == "Add" and found.parameters.get("projection"):
            right, left = (shape_text(each[-1:]) for each in (shapes[1], shapes[0]))
            words = f"Add() sums {left} and {right} channels: a 1x1 convolution without bias brings one to the other"
            self.findings.note(use.span, words, approximated=True)
        if use.type.name == "Output" and len(found.shape) > 1:
            words = (
                f"Output gives {shape_text(found.shape)}, one answer a place: Flatten() before it gives one a sample"
            )
            self.findings.note(use.span, words)
        if not plan.parameters["trainable"]:
            found = replace(found, trainable=0, fixed=found.parameter_count)
        return found

    def with_block(self, use: Use, plan: LayerPlan, shape: Shape) -> LayerPlan | None:
        """Return a layer with the layers of its block, None if one of those has a problem."""
        name = use.type.name
        if name not in {*BODY_ONLY, "ResidualConnection", "Bidirectional", "TimeDistributed"}:
            raise ShapeFault("takes no block of layers")
        within = shape[1:] if name == "TimeDistributed" else shape
        if name == "TimeDistributed" and len(shape) < 2:
            raise ShapeFault(f"needs an input of (steps, ...), and gets {shape_text(shape)}")
        # The layers of a block are numbered among themselves, and its input has no name.
        nodes = use.block or ()
        wire = Wire("", within)
        container = Container({})
        body = self.begin(nodes, wire)
        unread, self.unread = self.unread, []
        self.run(nodes, body, container)
        self.merged(nodes, body)
        self.unread = unread
        children = tuple(container.layers)
        if body.current.shape is None:
            return None
        if not children:
            raise ShapeFault("needs a block of layers")
        if name in BODY_ONLY:
            words = (
                f"{name} with a block: the layers of the block run in its place, and its own parameters are not used"
            )
            self.findings.note(use.span, words, approximated=True)
        return around(plan, children, shape, body.current.shape)

    def problem(self, use: Use, message: str, *, expected: str = "") -> None:
        self.findings.problem(message, use.span, expected=expected, trail=use.trail)


def _takes(use: Use, values: Values, shape: Shape) -> bool:
    """Return True if a layer takes an input of this shape."""
    try:
        use.type.infer((shape,), values)
    except (ShapeFault, TypeError):  # a parameter that is unknown is a problem already
        return False
    return True


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
    if "projection" in values and shapes[0][:-1] == shapes[1][:-1] and shapes[0] != shapes[1]:
        # A sum of other channels is how public files write a shortcut: as in ResNet, a 1x1 convolution brings it over.
        left, right = shapes[0][-1], shapes[1][-1]
        if left is not None and right is not None and 1 not in {left, right}:
            return replace(plan, parameters={**values, "projection": left}, shape=shapes[0], trainable=left * right)
    found: Inferred = kind.infer(shapes, values)
    return replace(plan, shape=found.shape, trainable=found.trainable, fixed=found.fixed)
