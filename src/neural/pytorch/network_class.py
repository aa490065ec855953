"""Write the class of a model: layers enter, the text of classes leaves.

A block, such as that of a ResidualConnection, becomes a class of its own. The channels are moved only where a layer
needs them elsewhere, so that an image stays as torch has it from its first convolution to the layer that flattens it.
"""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neural.layer_writing import NotWritten, Writing, readers_of
from neural.plan import shape_text
from neural.pytorch import WRITERS
from neural.pytorch.layer_code import LayerCode, Use, Wire
from neural.pytorch.module_source import definitions
from neural.pytorch.recurrent import construct
from neural.pytorch.weights import penalties, refuse_unbuilt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neural.plan import InputPlan, LayerPlan, Plan

MERGED_MASKS = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")
TAKEN = ("F", "mask", "model", "nn", "self", "torch", "x", "y")
"""Names that generated code has for something else."""
FILE_NAMES = (
    "BATCH_SIZE", "Callable", "DEVICE", "DataLoader", "EPOCHS", "F", "Mapping", "SEED",
    "Sequence", "TensorDataset",
)  # fmt: skip
"""Names that the generated file gives to something else than the class of its network."""
READ_MASKS = (
    "Attention",
    "Bidirectional",
    "GRU",
    "GlobalAveragePooling1D",
    "LSTM",
    "MultiHead",
    "SimpleRNN",
    "Transformer",
)
IMAGES = 2
"""Axes from which on channels may be first."""


@dataclass
class Written(Writing):
    """Collect what the classes of one file need."""

    classes: list[str] = field(default_factory=list)
    """Texts of classes, blocks before what uses them."""
    penalties: list[str] = field(default_factory=list)
    """Terms that regularizers add to the loss."""


@dataclass
class Body:
    """Hold the statements of one class while its layers are written."""

    init: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)


def identifier(name: str) -> str:
    """Return a name that Python takes."""
    found = re.sub(r"\W", "_", name)
    return f"{found}_" if keyword.iskeyword(found) or not found or found[0].isdigit() else found


def variable(name: str) -> str:
    """Return the variable of a layer's output: `layer_normalization_3` for LayerNormalization_3."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def moved(wire: Wire, *, first: bool) -> Wire:
    """Return a tensor with its channels first or last.

    What a convolution reads is copied: of a permuted view, torch 2.13 corrupts memory on a CPU in the backward pass of
    `nn.Conv2d(4, 8, 1, stride=2)`.
    """
    axes = len(wire.shape)
    if axes < IMAGES or wire.first == first:
        return wire
    order = (0, axes, *range(1, axes)) if first else (0, *range(2, axes + 1), 1)
    words = "transpose(1, 2)" if axes == IMAGES else f"permute({', '.join(map(str, order))})"
    return replace(wire, text=f"{wire.text}.{words}{'.contiguous()' if first else ''}", first=first)


def merged_mask(use: Use) -> str | None:
    """Return where a merged sequence has no empty place: where one of the inputs has none, as in Keras."""
    masks = list(dict.fromkeys(each.mask for each in use.inputs))
    known = [mask for mask in masks if mask]
    along_steps = use.layer.type == "Concatenate" and use.values["axis"] in (1, -len(use.inputs[0].shape))
    if len(known) < len(masks) or len({len(each.shape) for each in use.inputs}) > 1:
        return None
    if along_steps:
        return f"torch.cat([{', '.join(str(each.mask) for each in use.inputs)}], dim=1)"
    return known[0] if len(known) == 1 else f"({' | '.join(known)})"


class ClassWriter:
    """Write the layers of the network or of one block."""

    def __init__(self, written: Written, layers: Sequence[LayerPlan], path: str = "model") -> None:
        self.written = written
        self.layers = layers
        self.path = path
        self.body = Body()
        self.wires: dict[str, Wire] = {}
        self.masks = 0
        self.readers = readers_of(layers)

    # ---------------------------------------------------------------- one layer after another

    def write(self, logits: bool = False) -> Wire:
        """Write all layers, and return the last output. With `logits` the last activation is left out."""
        for place, layer in enumerate(self.layers):
            bare = logits and place == len(self.layers) - 1
            try:
                refuse_unbuilt(layer)
                self.layer(place, layer, bare=bare)
                self.written.penalties += penalties(layer, f"{self.path}.{layer.name}")
            except NotWritten as error:
                self.written.problem(layer, str(error))
                self.wires[layer.name] = Wire("x", layer.shape)
        return self.wires[self.layers[-1].name]

    def layer(self, place: int, layer: LayerPlan, *, bare: bool) -> None:
        """Write one layer."""
        known = [self.wires[name] for name in layer.inputs]
        if layer.children:
            self.block(place, layer, known[0])
            return
        writer = WRITERS.get(layer.type)
        if writer is None:
            raise NotWritten("cannot be built with PyTorch")
        if bare and layer.type == "Activation":
            self.wires[layer.name] = known[0]
            return
        use = Use(layer, tuple(self.placed(place, layer, known, writer.layout)))
        if bare:
            use = replace(use, layer=replace(layer, parameters={**layer.parameters, "activation": "linear"}))
        code = writer.write(use)
        layout = writer.layout == "first" or (writer.layout == "any" and use.inputs[0].first)
        gives = Wire("", layer.shape, first=layout and len(layer.shape) >= IMAGES)
        self.statement(place, layer, code, self.with_mask(gives, use, passes=writer.passes_mask))
        if layer.type == "Embedding":
            self.find_empty(layer, use)

    def placed(self, place: int, layer: LayerPlan, known: list[Wire], layout: str) -> list[Wire]:
        """Return the inputs with their channels where the layer needs them."""
        # Several inputs of one expression have their channels at the same place: that of the first image.
        images = [wire for wire in known if len(wire.shape) >= IMAGES]
        first = images[0].first if layout == "any" and images else layout == "first"
        found = []
        for name, wire in zip(layer.inputs, known, strict=True):
            there = moved(wire, first=first)
            if there.text != wire.text and wire.text == "x" and self.readers[name] == [place]:
                self.body.forward.append(f"x = {there.text}  # channels {'first' if first else 'last'}")
                there = replace(there, text="x")
            found.append(there)
        return found

    def statement(self, place: int, layer: LayerPlan, code: LayerCode, gives: Wire) -> None:
        """Write the statements of a layer, and remember its output."""
        target = self.target(place, layer)
        me = f"self.{layer.name}"
        if code.construct:
            self.body.init.append(f"{me} = {code.construct}")
            self.body.init += code.setup
            self.body.weights += code.weights
            if not layer.parameters.get("trainable", True):
                self.body.weights.append(f"{me}.requires_grad_(False)")
        self.written.helpers.update(code.helpers)
        comment = f"  # {code.comment}" if code.comment else ""
        if code.call != target:
            self.body.forward.append(f"{target} = {code.call}{comment}")
        self.wires[layer.name] = replace(gives, text=target)

    def target(self, place: int, layer: LayerPlan) -> str:
        """Return `x` if only the next layer reads the output, else a variable of its own."""
        readers = self.readers.get(layer.name, [])
        return "x" if place == len(self.layers) - 1 or set(readers) == {place + 1} else variable(layer.name)

    # ---------------------------------------------------------------- empty places

    def find_empty(self, layer: LayerPlan, use: Use) -> None:
        """Write which steps are empty places; the line is taken out again if nothing reads it."""
        self.masks += 1
        name = "mask" if self.masks == 1 else f"mask_{self.masks}"
        at = len(self.body.forward) - 1
        self.body.forward.insert(at, f"{name} = {use.x} != 0  # False at empty places")
        wire = self.wires[layer.name]
        masked = name if layer.parameters["mask_zero"] else None
        self.wires[layer.name] = replace(wire, mask=masked, places=name)

    @staticmethod
    def with_mask(wire: Wire, use: Use, *, passes: bool) -> Wire:
        """Return the output with the empty places of the input, if the layer leaves the steps as they are."""
        before = use.inputs[0]
        if use.layer.type in MERGED_MASKS and any(each.mask for each in use.inputs):
            return replace(wire, mask=merged_mask(use), places=before.places)
        same = len(wire.shape) >= IMAGES and wire.shape[0] == before.shape[0]
        if not same or not passes:
            return wire
        if use.layer.type == "BatchNormalization" and before.mask:
            raise NotWritten("comes after mask_zero=true: means without the empty places are not built")
        return replace(wire, mask=before.mask, places=before.places)

    # ---------------------------------------------------------------- blocks

    def block(self, place: int, layer: LayerPlan, given: Wire) -> None:
        """Write a layer around others: two directions of one layer, or a class of its own."""
        if layer.type == "Bidirectional":
            self.both_ways(place, layer, given)
            return
        inner = ClassWriter(self.written, layer.children, f"{self.path}.{layer.name}")
        writer = WRITERS.get(layer.children[0].type)
        within = given.shape[1:] if layer.type == "TimeDistributed" else given.shape
        first = writer is not None and writer.layout == "first" and len(within) >= IMAGES
        wire = self.placed(place, layer, [given], "first" if first and within == given.shape else "last")[0]
        start = Wire("x", within, first=first and within == given.shape)
        last = inner.run_block(layer, start)
        shape = layer.shape if layer.type == "TimeDistributed" else last.shape
        name = layer.name.replace("_", "")
        name = f"{name}Of{self.path.rpartition('.')[2].replace('_', '')}" if "." in self.path else name
        words = {"ResidualConnection": "Add the output of its layers to their input"}.get(layer.type, "Run its layers")
        words = f"{words}: {shape_text(given.shape)} to {shape_text(shape)}."
        # `initialize` runs over all layers of the model first, so the model says which weights are others.
        self.body.weights += [line.replace("self.", f"self.{layer.name}.") for line in inner.body.weights]
        inner.body.weights = []
        self.written.classes.append(class_text(name, words, inner.body, "x: torch.Tensor"))
        kept = len(layer.shape) >= IMAGES and layer.shape[0] == given.shape[0]
        if wire.mask and any(child.type.startswith(READ_MASKS) for child in layer.children):
            raise NotWritten("has a layer that leaves out empty places: write it outside of the block")
        gives = Wire("", layer.shape, last.first, wire.mask if kept else None, wire.places if kept else None)
        self.statement(place, layer, LayerCode(f"self.{layer.name}({wire.text})", f"{name}()"), gives)

    def run_block(self, layer: LayerPlan, start: Wire) -> Wire:
        """Write the layers of a block with what stands around them, and return its output."""
        forward = self.body.forward
        if layer.type == "TimeDistributed":
            forward.append("steps = x.shape[1]")
            forward.append("x = x.flatten(0, 1)  # the steps as samples")
        if layer.type == "ResidualConnection":
            return self.residual(layer, start)
        # A variable of a block is read by all layers that have "" as their input.
        self.wires[""] = start
        if self.readers.get("") != [0]:
            forward.append("start = x")
            self.wires[""] = replace(start, text="start")
        last = moved(self.write(), first=start.first)
        steps = ".unflatten(0, (-1, steps))" if layer.type == "TimeDistributed" else ""
        forward.append(f"return {last.text}{steps}")
        return last

    def residual(self, layer: LayerPlan, start: Wire) -> Wire:
        """Write the sum of the input and the block; a projection stands on the way of the input."""
        projection = layer.parameters.get("projection")
        self.wires[""] = replace(start, text="shortcut")
        self.body.forward.append("shortcut = x")
        chain = [each for each in self.layers if each.name != projection]
        last = Wire("shortcut", start.shape, first=start.first)
        main = ClassWriter(self.written, chain, self.path)
        main.body, main.wires = self.body, self.wires
        if chain:
            last = main.write()
        shortcut = self.wires[""]
        if projection is not None:
            branch = ClassWriter(self.written, [each for each in self.layers if each.name == projection], self.path)
            branch.body, branch.wires = Body(), {"": shortcut}
            shortcut = branch.write()
            self.body.init += branch.body.init
            self.body.weights += branch.body.weights
            self.body.forward += [re.sub(r"^x = ", "shortcut = ", line) for line in branch.body.forward]
            shortcut = replace(shortcut, text=shortcut.text.replace("x", "shortcut", 1))
        both = moved(last, first=shortcut.first)
        self.body.forward.append(f"return {both.text} + {shortcut.text}")
        return both

    def both_ways(self, place: int, layer: LayerPlan, given: Wire) -> None:
        """Write a recurrent layer and its copy that reads backwards."""
        child = layer.children[0]
        kind = re.sub(r"(Cell|DropoutWrapper)$", "", child.type)
        mode = layer.parameters["merge_mode"]
        if kind.startswith("Conv") or mode is None:
            words = f"around {child.type}" if mode else "with merge_mode=None, which gives two outputs,"
            raise NotWritten(f"{words} is not built")
        refuse_unbuilt(child)
        penalties(child, "")  # refuses a regularizer, as that of any recurrent layer
        if not child.parameters.get("trainable", True):
            raise NotWritten("has trainable=false inside of it, which is built for Bidirectional as a whole only")
        wire = self.placed(place, layer, [given], "last")[0]
        use = Use(child, (wire,))
        back = not child.parameters["go_backwards"]
        (ahead, name, more), (behind, _, _) = construct(kind, use), construct(kind, use, backwards=back)
        if more or child.parameters["go_backwards"]:
            raise NotWritten("is built around a layer with the usual first weights, which reads forwards")
        words = "" if mode == "concat" else f', "{mode}"'
        mask = f", {wire.mask}" if wire.mask else ""
        code = LayerCode(
            f"self.{layer.name}({wire.text}{mask})",
            f"Bidirectional({ahead}, {behind}{words})",
            helpers=("Bidirectional", name),
        )
        self.statement(place, layer, code, self.with_mask(Wire("", layer.shape), use, passes=True))


# ---------------------------------------------------------------- texts


def class_text(name: str, words: str, body: Body, parameters: str, *, root: bool = False) -> str:
    """Return the text of a class; masks that nothing reads are left out."""
    lines = [f"class {name}(nn.Module):", f'    """{words}"""', "", "    def __init__(self) -> None:"]
    lines += [f"        {line}" for line in ("super().__init__()", *body.init)]
    start = ["self.apply(initialize)", *body.weights] if root else body.weights
    lines += [f"        {line}" for line in start]
    lines += ["", f"    def forward(self, {parameters}) -> torch.Tensor:"]
    lines += [f"        {line}" for line in without_unread(body.forward)]
    return "\n".join(lines)


def without_unread(forward: Sequence[str]) -> list[str]:
    """Return the statements without those that find empty places which no other one reads."""
    found = []
    for line in forward:
        name = re.match(r"(mask\w*) = ", line)
        if name and sum(bool(re.search(rf"\b{name[1]}\b", each)) for each in forward) == 1:
            continue
        found.append(line)
    return found


def network(written: Written, *, logits: bool) -> tuple[str, Wire]:
    """Write the class of the network, and return its name and its last output."""
    plan = written.plan
    writer = ClassWriter(written, plan.layers)
    parameters = []
    for each in plan.inputs:
        name = input_name(plan, each)
        alone = len(plan.inputs) == 1 and writer.readers.get(each.name) == [0]
        text = "x" if alone else name
        parameters.append(f"{text}: torch.Tensor")
        writer.wires[each.name] = Wire(text, each.shape)
    last = writer.write(logits=logits)
    end = moved(last, first=False)
    forward = writer.body.forward
    if end.text == "x" and forward and forward[-1].startswith("x = ") and "  # " not in forward[-1]:
        forward[-1] = "return " + forward[-1].removeprefix("x = ")
    else:
        forward.append(f"return {end.text}")
    if logits:
        forward[-1] += "  # the loss takes the activation"
    name = class_name(plan, written.classes)
    shapes = " and ".join(f"{shape_text(each.shape)}{' of ids' if each.ids else ''}" for each in plan.inputs)
    words = f"Map {shapes} to {shape_text(plan.layers[-1].shape)}."
    # The weights of blocks are set by their own classes, before `initialize` runs over all layers.
    written.classes.append(class_text(name, words, writer.body, ", ".join(parameters), root=True))
    return name, end


def input_name(plan: Plan, given: InputPlan) -> str:
    """Return the name of an input as a parameter of `forward`."""
    if len(plan.inputs) == 1:
        return "inputs"
    name = identifier(given.name)
    taken = name in TAKEN or name in definitions() or name in {variable(layer.name) for layer in plan.layers}
    return f"{name}_input" if taken else name


def class_name(plan: Plan, classes: Sequence[str] = ()) -> str:
    """Return the name of the network's class: its own, unless the file has it for something else, as for a block."""
    name = identifier(plan.name)
    name = f"{name}Model" if name[0].islower() else name
    taken = {*FILE_NAMES, *dir(builtins), *definitions(), *(text.split("(", 1)[0].split()[-1] for text in classes)}
    while name in taken:
        name += "Model"
    return name
