"""Layers that make one output of several inputs, as plain expressions."""

from __future__ import annotations

from functools import partial

from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, Wire


def add(use: Use) -> LayerCode:
    """Return a sum. Where the check planned a 1x1 convolution, it brings the second input to the first one's size."""
    texts = [wire.text for wire in use.inputs]
    size = use.values.get("projection")
    if not size:
        return LayerCode(" + ".join(texts), comment=use.layer.name)
    other = use.inputs[1]
    rank, channels = len(other.shape) - 1, other.shape[-1]
    module = f"nn.Linear({channels}, {size}, bias=False)"
    if other.channel_axis == 1:
        module = f"nn.Conv{rank}d({channels}, {size}, kernel_size=1, bias=False)"
    return LayerCode(f"{texts[0]} + {use.me}({texts[1]})", module, comment="brings one to the size of the other")


def infix(sign: str, use: Use) -> LayerCode:
    """Return an operator between all inputs. A gate, which has no space, weighs each channel of an image."""
    texts = [wire.text for wire in use.inputs]
    if use.values.get("gate"):
        image, gate = use.inputs
        texts[1] = f"{gate.text}[{_gate_axes(image)}]"
    return LayerCode(f" {sign} ".join(texts), comment=use.layer.name)


def _gate_axes(image: Wire) -> str:
    space = [":"] + ["None"] * (len(image.shape) - 1)
    return ", ".join([":", *space] if image.channel_axis == 1 else [":", *space[1:], ":"])


def average(use: Use) -> LayerCode:
    """Return the mean of the inputs."""
    texts = [wire.text for wire in use.inputs]
    return LayerCode(f"({' + '.join(texts)}) / {len(texts)}", comment=use.layer.name)


def extreme(function: str, use: Use) -> LayerCode:
    """Return the largest or the smallest of the inputs."""
    call = use.x
    for wire in use.inputs[1:]:
        call = f"torch.{function}({call}, {wire.text})"
    return LayerCode(call, comment=use.layer.name)


def join(use: Use) -> LayerCode:
    """Return the inputs one after another along an axis."""
    texts = ", ".join(wire.text for wire in use.inputs)
    axis, wire = use.values["axis"], use.inputs[0]
    place = axis - 1 if axis > 0 else len(wire.shape) + axis
    dim = place + 1
    if wire.channel_axis == 1:
        dim = 1 if place == len(wire.shape) - 1 else place + 2
    return LayerCode(f"torch.cat([{texts}], dim={dim})", comment=use.layer.name)


def dot(use: Use) -> LayerCode:
    """Return the products along one axis of each input."""
    names = iter("abcdefg")
    axes = use.values["axes"]
    letters = [
        ["n", *("k" if place == axis else next(names) for place in range(1, len(wire.shape) + 1))]
        for wire, axis in zip(use.inputs, axes, strict=True)
    ]
    texts = [wire.text for wire in use.inputs]
    if use.values["normalize"]:
        texts = [f"F.normalize({text}, dim={axis})" for text, axis in zip(texts, axes, strict=True)]
    kept = "".join(letter for each in letters for letter in each if letter not in "nk")
    left, right = ("".join(each) for each in letters)
    call = f'torch.einsum("{left},{right}->n{kept}", {texts[0]}, {texts[1]})'
    return LayerCode(call if kept else f"{call}.unsqueeze(1)", comment=use.layer.name)


MEMBERS = (
    LayerWriter("Add", add, passes_mask=True),
    LayerWriter("Subtract", partial(infix, "-"), passes_mask=True),
    LayerWriter("Multiply", partial(infix, "*"), passes_mask=True),
    LayerWriter("Average", average, passes_mask=True),
    LayerWriter("Maximum", partial(extreme, "maximum"), passes_mask=True),
    LayerWriter("Minimum", partial(extreme, "minimum"), passes_mask=True),
    LayerWriter("Concatenate", join, passes_mask=True),
    LayerWriter("Dot", dot, "last"),
)
