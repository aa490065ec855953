"""Expand macros and repetitions: items of the tree enter, uses of built-in layers leave.

A macro becomes a `Group`, because `Add()` without operands in it means its input. Branches become `Parallel`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from neural.check.evaluation import Scope, evaluate, given
from neural.check.findings import ValueFault
from neural.errors import Span, nearest
from neural.language.tree import Branch, Call, Formal, Layer
from neural.layers import BY_NAME, LAYERS
from neural.layers.parameter import UNKNOWN, Given, value_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neural.check.findings import Findings
    from neural.language.tree import Argument, Item, Macro, SourceFile
    from neural.layers.layer_type import LayerType

MOST_LAYERS = 10_000
"""Layers of a network; the deepest public one has 300."""
DEEPEST = 100
"""Macros and blocks inside each other."""
DEVICES = ("auto", "cpu", "cuda", "gpu", "mps", "tpu")
DEVICE = re.compile(r"auto|cpu|mps|(?:cuda|gpu|tpu)(?::[0-9]{1,4})?")


NOWHERE = Span(1, 1, 1, 1)


class TooManyLayers(Exception):
    """Raised to stop an expansion that does not end soon."""


@dataclass(frozen=True)
class Use:
    """Hold one use of a built-in layer, with computed arguments."""

    type: LayerType
    given: tuple[Given, ...]
    span: Span
    trail: tuple[str, ...]
    """Where the macros around it are used, from the inside out."""
    device: str | None
    block: tuple[Node, ...] | None


@dataclass(frozen=True)
class Group:
    """Hold the layers of one use of a macro."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Parallel:
    """Hold branches side by side, which read the same input."""

    branches: tuple[tuple[str, tuple[Node, ...]], ...]
    span: Span


Node: TypeAlias = Use | Group | Parallel


def device_of(text: str) -> str | None:
    """Return a device in lower case (`gpu:01` is `cuda:1`), None if there is none of that name."""
    if not DEVICE.fullmatch(text.lower()):
        return None
    name, colon, number = text.lower().partition(":")
    return f"{'cuda' if name == 'gpu' else name}:{int(number)}" if colon else name


def checked_device(text: str, span: Span, findings: Findings, trail: tuple[str, ...] = ()) -> str | None:
    """Return a device as `device_of` does. None, which is a problem, if there is none of that name; a TPU is a note."""
    device = device_of(text)
    if device is None:
        near = nearest(text.partition(":")[0], DEVICES)
        words = "auto, cpu, gpu, cuda, cuda:0 or tpu"
        findings.problem(f"unknown device {text!r}", span, expected=words, suggestion=near, trail=trail)
    elif device.startswith("tpu"):
        findings.note(span, "PyTorch as it is used here knows no TPU: CUDA is taken where it is there, else the CPU")
    return device


class Expander:
    """Expand the macros and repetitions of one network."""

    def __init__(self, source: SourceFile, findings: Findings) -> None:
        self.findings = findings
        self.macros: dict[str, Macro] = {}
        for macro in source.macros:
            if macro.name in self.macros:
                findings.problem(f"the macro {macro.name!r} is defined twice", macro.name_span)
            self.macros[macro.name] = macro
        self.by_lower = {name.lower(): macro for name, macro in self.macros.items()}
        self.count = 0
        self.depth = 0
        self.open: list[str] = []
        """The macros whose bodies are being expanded, outermost first."""

    def items(self, items: Sequence[Item], scope: Scope) -> tuple[Node, ...]:
        """Return the nodes of items in order; consecutive branches are one node."""
        self.depth += 1
        if self.depth > DEEPEST:
            message = f"more than {DEEPEST} macros and blocks inside each other"
            self.findings.problem(message, items[0].span if items else NOWHERE, trail=scope.trail[:3])
            raise TooManyLayers
        found: list[Node] = []
        branches: list[tuple[str, tuple[Node, ...]]] = []
        for item in items:
            if isinstance(item, Branch):
                self.grow(1, item.span)
                if any(name == item.name for name, _ in branches):
                    self.findings.problem(f"two branches are called {item.name!r}", item.span, trail=scope.trail)
                branches.append((item.name, self.items(item.items, scope)))
                place = item.span
                continue
            if branches:
                found.append(Parallel(tuple(branches), place))
                branches = []
            found += self.repeated(item, scope)
        if branches:
            found.append(Parallel(tuple(branches), place))
        self.depth -= 1
        return tuple(found)

    def repeated(self, layer: Layer, scope: Scope) -> list[Node]:
        """Return the nodes of a layer, as many times as it says."""
        times = self.factor(layer, scope)
        before = self.count
        nodes = self.layer(layer, scope)
        self.grow((self.count - before) * (times - 1), layer.span)
        return list(nodes) * times

    def grow(self, by: int, span: Span) -> None:
        self.count += by
        if self.count > MOST_LAYERS:
            self.findings.problem(
                f"the network has more than {MOST_LAYERS:,} layers", span, expected="fewer repetitions"
            )
            raise TooManyLayers

    def factor(self, layer: Layer, scope: Scope) -> int:
        """Return the number after `*`, 1 without one."""
        if layer.repeat is None:
            return 1
        try:
            times = evaluate(layer.repeat, scope)
        except ValueFault as fault:
            self.findings.fault(fault, scope.trail)
            return 1
        if isinstance(times, tuple) and len(times) == 1:
            (times,) = times
        if isinstance(times, float) and times.is_integer():
            times = int(times)
        if not isinstance(times, int) or isinstance(times, bool) or times < 1:
            message = f"{layer.type_name} is repeated {value_words(times)} times"
            self.findings.problem(message, layer.repeat.span, expected="a whole number above 0", trail=scope.trail)
            return 1
        return times

    # ---------------------------------------------------------------- one layer

    def layer(self, layer: Layer, scope: Scope) -> tuple[Node, ...]:
        """Return the nodes of a layer or of the use of a macro, once."""
        self.grow(1, layer.span)
        device = layer.device
        if device is not None:
            device = checked_device(device, layer.span, self.findings, scope.trail)
        name = layer.type_name
        macro = self.macros.get(name) or self.by_lower.get(name.lower())
        # In its own body, a macro that has the name of a built-in layer means that layer.
        if macro is not None and not (self.open[-1:] == [macro.name] and name.lower() in BY_NAME):
            return self.macro(macro, layer, scope)
        if name.lower() == "hpo":
            return self.chosen(layer, scope)
        known = BY_NAME.get(name.lower())
        if known is None:
            self.unknown(layer, scope)
            return ()
        if known.unbuildable:
            self.findings.problem(
                f"{known.name} cannot be built: {known.unbuildable}", layer.name_span, trail=scope.trail
            )
            return ()
        if known.approximated:
            self.findings.note(layer.span, known.approximated, approximated=True)
        return (self.use(known, layer, scope, device),)

    def use(self, known: LayerType, layer: Layer, scope: Scope, device: str | None) -> Use:
        """Return a built-in layer with its arguments and its block."""
        arguments = layer.arguments
        block = None if layer.block is None else self.items(layer.block, scope)
        if known.wraps and block is None:
            arguments, block = self.wrapped(known, layer, scope)
        return Use(known, given(arguments, scope), layer.span, scope.trail, device, block)

    def wrapped(
        self, known: LayerType, layer: Layer, scope: Scope
    ) -> tuple[tuple[Argument, ...], tuple[Node, ...] | None]:
        """Return the arguments without the layer among them, and that layer as a block."""
        for argument in layer.arguments:
            if argument.name in {None, "layer"} and isinstance(argument.value, Call):
                rest = tuple(each for each in layer.arguments if each is not argument)
                return rest, self.layer(as_layer(argument.value), scope)
        example = "LSTM(64)" if known.name == "Bidirectional" else "Dense(10)"
        message = f"{known.name} needs a layer"
        self.findings.problem(message, layer.span, expected=f"{known.name}({example})", trail=scope.trail)
        return layer.arguments, None

    def unknown(self, layer: Layer, scope: Scope) -> None:
        name = layer.type_name
        if name.endswith("Layer"):
            message, expected = (
                f"{name} is a layer of your own, and this file does not define it",
                f"define {name} {{ ... }}",
            )
        else:
            message, expected = f"unknown layer {name!r}", "a layer of Keras, or a macro of this file"
        near = ""
        if not self.findings.full:
            near = nearest(name, [*self.macros, *(each.name for each in LAYERS.values() if not each.unbuildable)])
        self.findings.problem(message, layer.name_span, expected=expected, suggestion=near, trail=scope.trail)

    def chosen(self, layer: Layer, scope: Scope) -> tuple[Node, ...]:
        """Return the first layer of a choice of layers."""
        choice = layer.arguments[0].value if len(layer.arguments) == 1 else None
        layers = [each.value for each in choice.arguments] if isinstance(choice, Call) else []
        calls = [each for each in layers if isinstance(each, Call)]
        if not calls or len(calls) < len(layers):
            words = "HPO(choice(Dense(64), Dropout(0.5)))"
            self.findings.problem("a choice of layers has layers only", layer.span, expected=words, trail=scope.trail)
            return ()
        names = [f"{call.name} (line {call.span.line}, column {call.span.column})" for call in calls]
        taken = self.findings.search("choice", tuple(names), names[0], layer.span)
        call = calls[names.index(taken)] if taken in names else calls[0]
        self.findings.note(layer.span, f"search: {call.name} is taken, of {', '.join(each.name for each in calls)}")
        return self.layer(as_layer(call), scope)

    # ---------------------------------------------------------------- macros

    def macro(self, macro: Macro, layer: Layer, scope: Scope) -> tuple[Node, ...]:
        """Return the layers of a macro with its parameters replaced."""
        if macro.name in self.open:
            chain = [*self.open[self.open.index(macro.name) :], macro.name]
            message = f"the macro {macro.name} uses itself: {' -> '.join(chain)}"
            self.findings.problem(message, layer.name_span, trail=scope.trail)
            return ()
        used = f"in the macro {macro.name}, used in line {layer.span.line}"
        inner = Scope(self.findings, self.variables(macro, layer, scope), (used, *scope.trail))
        self.open.append(macro.name)
        try:
            nodes = self.items(macro.items, inner)
        finally:
            self.open.pop()
        if layer.block is not None:
            nodes += self.items(layer.block, scope)
        return (Group(nodes),)

    def variables(self, macro: Macro, layer: Layer, scope: Scope) -> dict[str, Any]:
        """Return the values of the parameters of a macro at one of its uses."""
        formals = {formal.name: formal for formal in macro.parameters}
        values: dict[str, Any] = {}
        waiting = list(macro.parameters)
        for argument in given(layer.arguments, scope):
            name = argument.name if argument.name is not None else _next(waiting, values)
            if name is None or name not in formals:
                self.findings.problem(
                    f"the macro {macro.name} has no parameter {name!r}"
                    if name
                    else f"too many arguments for {macro.name}",
                    argument.place,
                    expected=f"one of {', '.join(formals)}" if formals else f"{macro.name}()",
                    suggestion=nearest(name or "", formals),
                    trail=scope.trail,
                )
                waiting = []  # what it was meant for may be missing: one problem is enough
                values = {**dict.fromkeys(formals, UNKNOWN), **values}
                continue
            if values.get(name, UNKNOWN) is not UNKNOWN:
                self.findings.problem(f"{name} of {macro.name} is given twice", argument.place, trail=scope.trail)
            values[name] = argument.value
        inner = Scope(self.findings, values, scope.trail)
        for formal in macro.parameters:
            self.default(formal, macro, layer, inner, values)
        return values

    def default(self, formal: Formal, macro: Macro, layer: Layer, scope: Scope, values: dict[str, Any]) -> None:
        """Give a parameter its default if a use has no value for it."""
        if formal.name in values:
            return
        if formal.default is None:
            named = {argument.name for argument in layer.arguments}
            if formal.name not in named:
                message = f"{macro.name} needs {formal.name}"
                self.findings.problem(message, layer.span, expected=f"{formal.name}=...", trail=scope.trail)
            values[formal.name] = UNKNOWN
            return
        try:
            values[formal.name] = evaluate(formal.default, scope)
        except ValueFault as fault:
            self.findings.fault(fault, scope.trail)
            values[formal.name] = UNKNOWN


def _next(waiting: list[Formal], values: dict[str, Any]) -> str | None:
    """Return the name of the next parameter without a value, None if all have one."""
    while waiting:
        formal = waiting.pop(0)
        if formal.name not in values:
            return formal.name
    return None


def as_layer(call: Call) -> Layer:
    """Return a call as the layer that it would be in a list of layers."""
    return Layer(call.name, call.arguments, None, None, None, call.span, call.span, None, None)
