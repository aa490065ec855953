"""Write `build_model()`: layers enter, the text of functions leaves.

The functional API calls one layer after another, so a block stands where it is used, and its layers are named after
it: `ResidualConnection_1_Conv2D_2`. What runs at each step becomes a function that makes a model of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neural.keras_code import WRITERS
from neural.keras_code.layer_code import LayerCode, Use, Wire, literal
from neural.keras_code.recurrent import write as write_recurrent
from neural.layer_writing import NotWritten, Writing, readers_of
from neural.plan import shape_text
from neural.pytorch.code_layout import WIDTH
from neural.pytorch.layer_code import arguments
from neural.pytorch.network_class import identifier, input_name, variable, without_unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neural.plan import InputPlan, LayerPlan, Plan

TAKEN = ("block", "inputs", "keras", "layer", "layers", "ops", "range", "shortcut", "x")
"""Names that generated code has for something else."""
INDENT = "    "


@dataclass
class Written(Writing):
    """Collect what the functions of one file need."""

    backend: str = "keras"
    functions: list[str] = field(default_factory=list)
    """Texts of functions that make the models of steps, each before its use."""


class FunctionWriter:
    """Write the layers of the network or of one block."""

    def __init__(self, written: Written, layers: Sequence[LayerPlan], path: str = "", depth: int = 0) -> None:
        self.written, self.layers, self.path, self.depth = written, layers, path, depth
        self.body: list[str] = []
        self.wires: dict[str, Wire] = {}
        self.readers = readers_of(layers)

    def write(self) -> Wire:
        """Write all layers, and return the last output."""
        read = self.leading()
        for place, layer in enumerate(self.layers):
            if layer.name not in read:
                self.written.problem(layer, "leads not to the output, and a model of Keras has nothing else")
                self.wires[layer.name] = Wire("x", layer.shape)
                continue
            try:
                self.layer(place, layer)
            except NotWritten as error:
                self.written.problem(layer, str(error))
                self.wires[layer.name] = Wire("x", layer.shape)
        return self.wires[self.layers[-1].name]

    def leading(self) -> set[str]:
        """Return the names of the layers from which the last one follows."""
        found = {self.layers[-1].name}
        for layer in reversed(self.layers):
            if layer.name in found:
                found.update(layer.inputs)
        return found

    # ---------------------------------------------------------------- one layer

    def layer(self, place: int, layer: LayerPlan) -> None:
        """Write one layer."""
        known = tuple(self.wires[name] for name in layer.inputs)
        if layer.children and layer.type not in {"Bidirectional", "TimeDistributed"}:
            self.block(place, layer, known[0])
            return
        if layer.parameters.get("projection"):
            known = (known[0], self.projected(layer, known[1]))
        use = Use(layer, known, self.written.backend)
        code, keeps_steps = self.code(layer, use)
        target = self.target(place, layer)
        places: str | None
        if layer.type == "Embedding":
            places = self.unused("mask")
            self.body.append(f"{places} = ops.not_equal({use.x}, 0)  # False at empty places")
        else:
            places = self.places(layer, use) if keeps_steps else None
        self.statements(target, layer, code)
        self.wires[layer.name] = Wire(target, layer.shape, places)

    def code(self, layer: LayerPlan, use: Use) -> tuple[LayerCode, bool]:
        """Return the code of a layer, and True if it leaves the steps as they are."""
        if layer.children:
            return (self.both_ways(layer, use) if layer.type == "Bidirectional" else self.each_step(layer)), True
        writer = WRITERS.get(layer.type)
        if writer is None:
            raise NotWritten("cannot be built with Keras")
        code = writer.write(use)
        self.written.helpers.update(code.helpers)
        return code, writer.keeps_steps

    def statements(self, target: str, layer: LayerPlan, code: LayerCode) -> None:
        """Write the statements that make a layer and call it; several blocks run after one another."""
        reads = code.reads or self.wires[layer.inputs[0]].text
        name = literal(self.path + layer.name)
        if code.blocks == 1:
            self.body += called(target, self.made(layer, code, name), reads)
            return
        first = self.wires[layer.inputs[0]].text
        if target != first:
            self.body.append(f"{target} = {first}")
        inner = called(target, self.made(layer, code, f'f"{self.path}{layer.name}_{{block}}"'), _put(reads, target))
        self.body += [f"for block in range(1, {code.blocks + 1}):", *(INDENT + line for line in inner)]

    def made(self, layer: LayerPlan, code: LayerCode, name: str) -> str:
        """Return the expression that makes a layer."""
        plan = self.written.plan
        wide = plan.training["mixed_precision"] and layer is plan.layers[-1]
        words = arguments(
            *filter(None, (code.words,)),
            trainable=None if layer.parameters.get("trainable", True) else False,
            dtype='"float32"' if wide else None,
            name=name,
        )
        return f"{code.make}({words})"

    def target(self, place: int, layer: LayerPlan) -> str:
        """Return `x` if only the next layer reads the output, else a variable of its own."""
        readers = self.readers.get(layer.name, [])
        if place == len(self.layers) - 1 or set(readers) == {place + 1}:
            return "x"
        return self.unused(variable(self.path + layer.name))

    def unused(self, name: str) -> str:
        """Return a name that is no input of the network."""
        inputs = {input_variable(self.written.plan, each) for each in self.written.plan.inputs}
        if name == "mask":
            count = sum(bool(re.match(r"mask\w* = ", line)) for line in self.body)
            name = f"mask_{count + 1}" if count else name
        return f"{name}_output" if name in {*inputs, *TAKEN} else name

    @staticmethod
    def places(layer: LayerPlan, use: Use) -> str | None:
        """Return the variable of the empty places after a layer, None if its steps are others."""
        before = use.inputs[0]
        same = len(layer.shape) > 1 and len(before.shape) > 1 and layer.shape[0] == before.shape[0]
        return before.places if same else None

    def projected(self, layer: LayerPlan, other: Wire) -> Wire:
        """Write the convolution of 1x1 that brings the second input of a sum to the channels of the first."""
        size, name = layer.parameters["projection"], literal(f"{self.path}{layer.name}_projection")
        target = self.unused(variable(f"{self.path}{layer.name}_projection"))
        words = arguments(size, use_bias=False, trainable=self.frozen(layer), name=name)
        self.body += called(target, f"layers.Dense({words})", other.text)
        return replace(other, text=target)

    @staticmethod
    def frozen(layer: LayerPlan) -> bool | None:
        return None if layer.parameters.get("trainable", True) else False

    # ---------------------------------------------------------------- blocks

    def inside(self, layers: Sequence[LayerPlan], layer: LayerPlan, start: Wire) -> FunctionWriter:
        """Return a writer for layers of a block, which adds to the same function."""
        inner = FunctionWriter(self.written, layers, f"{self.path}{layer.name}_", self.depth + 1)
        inner.body, inner.wires = self.body, {"": start}
        return inner

    def block(self, place: int, layer: LayerPlan, given: Wire) -> None:
        """Write the layers of a block, and the sum around them if it is a ResidualConnection."""
        residual = layer.type == "ResidualConnection"
        projection = layer.parameters.get("projection") if residual else None
        chain = [each for each in layer.children if each.name != projection]
        alone = sum("" in each.inputs for each in chain) == 1 and bool(chain) and "" in chain[0].inputs
        start = given
        if given.text == "x" and (residual or not alone):
            start = replace(given, text=self.unused_start())
            self.body.append(f"{start.text} = x")
        last = self.inside(chain, layer, start).write() if chain else start
        if not residual:
            target = self.target(place, layer)
            if target != last.text:
                self.body.append(f"{target} = {last.text}")
            self.wires[layer.name] = replace(last, text=target)
            return
        if projection is not None:
            way = [each for each in layer.children if each.name == projection]
            branch = FunctionWriter(self.written, way, f"{self.path}{layer.name}_", self.depth + 1)
            branch.wires = {"": start}
            end = branch.write()
            # The output of the block is `x`: what its input becomes has a variable of its own.
            shortcut = start.text if start.text.startswith("shortcut") else self.unused_start()
            self.body += [re.sub(r"^x = ", f"{shortcut} = ", line) for line in branch.body]
            start = replace(end, text=shortcut)
        target = self.target(place, layer)
        name = literal(self.path + layer.name)
        self.body += called(target, f"layers.Add(name={name})", f"[{last.text}, {start.text}]")
        same = given.shape[:1] == layer.shape[:1]
        self.wires[layer.name] = Wire(target, layer.shape, given.places if same else None)

    def unused_start(self) -> str:
        """Return a variable for the input of a block that stands inside of others or alone."""
        return f"shortcut_{self.depth + 1}" if self.depth else "shortcut"

    def both_ways(self, layer: LayerPlan, use: Use) -> LayerCode:
        """Return a recurrent layer that reads in both directions."""
        child, mode = layer.children[0], layer.parameters["merge_mode"]
        if mode is None:
            raise NotWritten("with merge_mode=None, which gives two outputs, is not built")
        if child.type == "ConvGRU2D":
            raise NotWritten("around ConvGRU2D is not built")
        if child.parameters.get("go_backwards"):
            raise NotWritten("is built around a layer which reads forwards")
        within = Use(child, use.inputs, use.backend)
        writer = WRITERS[child.type] if child.type.startswith("Conv") else None
        inner = writer.write(within) if writer else write_recurrent(within)
        words = f"{inner.make}({inner.words})" + ("" if mode == "concat" else f", merge_mode={literal(mode)}")
        return LayerCode("layers.Bidirectional", words)

    def each_step(self, layer: LayerPlan) -> LayerCode:
        """Return what applies a layer at each step; several of them are a model of their own."""
        given = self.wires[layer.inputs[0]].shape
        within, child = given[1:], layer.children[0]
        writer = WRITERS.get(child.type)
        if writer and len(layer.children) == 1:
            code = writer.write(Use(child, (Wire("x", within),), self.written.backend))
            if code.blocks == 1 and not code.reads:
                self.written.helpers.update(code.helpers)
                return LayerCode("layers.TimeDistributed", self.made(child, code, literal(child.name)))
        name = identifier(variable(self.path + layer.name))
        inner = FunctionWriter(self.written, layer.children)
        inner.wires = {"": Wire("inputs", within)}
        last = inner.write()
        shapes = f"{shape_text(given)} to {shape_text(layer.shape)}"
        words = f"Return the layers that {layer.name} applies at each step: {shapes}"
        lines = [f"def {name}() -> keras.Model:", f'    """{words}."""', f"    inputs = keras.Input({tuple(within)})"]
        lines += [f"    {line}" for line in without_unread(inner.body)]
        lines.append(f"    return keras.Model(inputs, {last.text}, name={literal(layer.name)})")
        self.written.functions.append("\n".join(lines))
        return LayerCode("layers.TimeDistributed", f"{name}()")


# ---------------------------------------------------------------- texts


def called(target: str, made: str, reads: str) -> list[str]:
    """Return the statement that makes a layer and calls it, as two of them if one is too long."""
    line = f"{target} = {made}({reads})"
    if len(line) + 2 * len(INDENT) <= WIDTH:
        return [line]
    return [f"layer = {made}", f"{target} = layer({reads})"]


def _put(reads: str, target: str) -> str:
    """Return the arguments of a call whose first one is `target`."""
    _, comma, rest = reads.partition(", ")
    return f"{target}{comma}{rest}"


def input_variable(plan: Plan, given: InputPlan) -> str:
    """Return the variable of an input."""
    name = input_name(plan, given)
    return f"{name}_input" if name in TAKEN and len(plan.inputs) > 1 else name


def network(written: Written, keys: Iterable[str]) -> str:
    """Write `build_model`; `keys` are the names of the inputs in a data file."""
    plan = written.plan
    writer = FunctionWriter(written, plan.layers)
    starts, names = [], []
    for each, key in zip(plan.inputs, keys, strict=True):
        name = input_variable(plan, each)
        words = arguments(tuple(each.shape), dtype='"int32"' if each.ids else None, name=literal(key))
        starts.append(f"{name} = keras.Input({words})")
        names.append(name)
        writer.wires[each.name] = Wire(name, each.shape)
    last = writer.write()
    shapes = " and ".join(f"{shape_text(each.shape)}{' of ids' if each.ids else ''}" for each in plan.inputs)
    inputs = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    name = re.sub(r"[^A-Za-z0-9_]", "_", identifier(plan.name))  # TensorFlow's names are ASCII
    lines = [
        "def build_model() -> keras.Model:",
        f'    """Return the model with new random weights: {shapes} to {shape_text(plan.layers[-1].shape)}."""',
        *(f"    {line}" for line in (*starts, *without_unread(writer.body))),
        f"    return keras.Model({inputs}, {last.text}, name={literal(name)})",
    ]
    return "\n".join(lines)
