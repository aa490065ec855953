"""Layers around other layers: the shape and the parameters of a block follow from its children."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neural.layers import LAYERS
from neural.layers.layer_type import ShapeFault
from neural.plan import shape_text

if TYPE_CHECKING:
    from neural.plan import LayerPlan, Shape

RECURRENT = ("LSTM", "GRU", "SimpleRNN", "ConvLSTM2D", "ConvGRU2D")


def around(plan: LayerPlan, children: tuple[LayerPlan, ...], given: Shape, inner: Shape) -> LayerPlan:
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
    if len(plan.children) > 1 or not child.type.startswith(RECURRENT):
        raise ShapeFault(f"needs one recurrent layer, such as LSTM(64), and has {child.type}")
    last = inner[-1]
    twice = plan.parameters["merge_mode"] == "concat" and last is not None
    shape = (*inner[:-1], 2 * last) if twice and last is not None else inner
    return replace(plan, shape=shape, trainable=2 * plan.trainable, fixed=2 * plan.fixed)


def _residual(plan: LayerPlan, given: Shape, inner: Shape) -> LayerPlan:
    """Return a sum of the input and the block, whose last 1x1 convolution may be on the way of the input."""
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
        f"adds its input of {shape_text(given)} to a block that gives {shape_text(inner)}: give the block that shape, "
        "or end it with a Conv2D(..., kernel_size=1) that brings the input to the shape of the layers before"
    )


def _projected(plan: LayerPlan, given: Shape) -> LayerPlan | None:
    """Return a convolution as it is on the input of its block, None if it does not fit there."""
    try:
        found = LAYERS[plan.type].infer((given,), plan.parameters)
    except ShapeFault:
        return None
    return replace(plan, inputs=("",), shape=found.shape, trainable=found.trainable)
