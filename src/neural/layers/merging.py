"""Layers that make one output of several inputs: Add, Concatenate, Dot and others."""

from __future__ import annotations

from neural.layers.layer_type import Inferred, LayerType, ShapeFault, Values
from neural.layers.parameter import FLAG, WHOLE, Parameter, sizes
from neural.plan import Shape, shape_text


def broadcast(shapes: tuple[Shape, ...], _: Values) -> Inferred:
    """Return the common shape; an axis of size 1 takes the size of the other input's."""
    found = shapes[0]
    for shape in shapes[1:]:
        if len(shape) != len(found):
            raise _differ(shapes)
        axes = []
        for one, other in zip(found, shape, strict=True):
            if one != other and 1 not in {one, other} and None not in {one, other}:
                raise _differ(shapes)
            axes.append(other if one in {1, None} else one)
        found = tuple(axes)
    return Inferred(found)


def _differ(shapes: tuple[Shape, ...]) -> ShapeFault:
    return ShapeFault(f"needs inputs of one shape, and gets {' and '.join(map(shape_text, shapes))}")


def join(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the inputs one after another along an axis, which counts from 1 as the batch is 0."""
    rank, axis = len(shapes[0]), values["axis"]
    if any(len(shape) != rank for shape in shapes):
        raise _differ(shapes)
    place = axis - 1 if axis > 0 else rank + axis
    if not 0 <= place < rank or axis == 0:
        raise ShapeFault(f"has axis={axis}, and its inputs have {rank} axes beside the batch")
    for shape in shapes[1:]:
        others = zip(shapes[0][:place] + shapes[0][place + 1 :], shape[:place] + shape[place + 1 :], strict=True)
        if any(one != other and None not in {one, other} for one, other in others):
            raise ShapeFault(
                f"needs inputs that differ in one axis only, and gets {' and '.join(map(shape_text, shapes))}"
            )
    along = [shape[place] for shape in shapes]
    known = [size for size in along if size is not None]
    total = sum(known) if len(known) == len(along) else None
    return Inferred((*shapes[0][:place], total, *shapes[0][place + 1 :]))


def dot(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the products along one axis of each of two inputs."""
    if len(shapes) != 2:
        raise ShapeFault(f"needs two inputs, and gets {len(shapes)}")
    places = []
    for shape, axis in zip(shapes, values["axes"], strict=True):
        if not 1 <= axis <= len(shape):
            raise ShapeFault(f"has axes={values['axes']}, and an input has {len(shape)} axes beside the batch")
        places.append(axis - 1)
    if shapes[0][places[0]] != shapes[1][places[1]]:
        raise ShapeFault(f"needs axes of one size, and gets {' and '.join(map(shape_text, shapes))}")
    left, right = (shape[:at] + shape[at + 1 :] for shape, at in zip(shapes, places, strict=True))
    return Inferred((*left, *right) or (1,))


def _elementwise(name: str, verb: str) -> LayerType:
    return LayerType(name, f"{verb} its inputs, element by element.", infer=broadcast, merges=True)


MEMBERS = (
    _elementwise("Add", "Adds"),
    _elementwise("Subtract", "Subtracts"),
    _elementwise("Multiply", "Multiplies"),
    _elementwise("Average", "Takes the mean of"),
    _elementwise("Maximum", "Takes the largest of"),
    _elementwise("Minimum", "Takes the smallest of"),
    LayerType(
        "Concatenate",
        "Joins its inputs along an axis.",
        (Parameter("axis", WHOLE, -1, "The axis; 1 is the first one beside the batch"),),
        join,
        merges=True,
    ),
    LayerType(
        "Dot",
        "Multiplies two inputs along an axis of each.",
        (
            Parameter("axes", sizes(2), (1, 1), "The axis of each input; 1 is the first one beside the batch"),
            Parameter("normalize", FLAG, False, "Divide by the lengths first"),
        ),
        dot,
        merges=True,
    ),
)
