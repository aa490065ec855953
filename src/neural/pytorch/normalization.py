"""Layers that bring mean and variance of their input to trained values."""

from __future__ import annotations

from neural.layer_writing import NotWritten
from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments, unless
from neural.pytorch.weights import first_weights


def _trained(use: Use) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    """Return the argument `affine`, the statements that take one of its two weights away, and those for first ones."""
    scale, center = use.values["scale"], use.values["center"]
    names = {"gamma": f"{use.me}.weight"} if scale else {}
    if center:
        names["beta"] = f"{use.me}.bias"
    if not scale and not center:
        return "False", (), ()
    missing = {"weight": scale, "bias": center}
    setup = tuple(f"{use.me}.{name} = None" for name, there in missing.items() if not there)
    return None, setup, first_weights(use.values, names)


def normalize_batch(use: Use) -> LayerCode:
    """Return batch normalisation, whose momentum is the weight of the new value in torch."""
    values = use.values
    if not values["trainable"]:
        raise NotWritten("has trainable=false: it would use moving averages from the first step, which are not known")
    affine, setup, weights = _trained(use)
    rank = len(use.shape) - 1
    if rank > 3:
        raise NotWritten(f"has an input with {rank} axes before the channels: torch normalises at most 3")
    words = arguments(
        use.channels,
        eps=values["epsilon"],
        momentum=f"{round(1 - values['momentum'], 12):g}",
        affine=affine,
    )
    moving = {"moving_mean": f"{use.me}.running_mean", "moving_variance": f"{use.me}.running_var"}
    weights = (*weights, *first_weights(values, moving))
    return LayerCode(f"{use.me}({use.x})", f"nn.BatchNorm{max(rank, 1)}d({words})", setup, weights)


def normalize_last(use: Use) -> LayerCode:
    """Return a normalisation of the last axis."""
    values = use.values
    affine, setup, weights = _trained(use)
    bias = None
    if values["scale"] and not values["center"]:
        bias, setup = "False", ()
    words = arguments(use.channels, eps=values["epsilon"], elementwise_affine=affine, bias=bias)
    return LayerCode(f"{use.me}({use.x})", f"nn.LayerNorm({words})", setup, weights)


def normalize_groups(use: Use) -> LayerCode:
    """Return a normalisation of groups of channels."""
    return _groups(use, use.values["groups"])


def normalize_instances(use: Use) -> LayerCode:
    """Return a normalisation of each channel of each sample, which is that of groups of one."""
    return _groups(use, use.channels)


def _groups(use: Use, groups: int) -> LayerCode:
    affine, setup, weights = _trained(use)
    words = arguments(groups, use.channels, eps=unless(use.values["epsilon"], 1e-5), affine=affine)
    return LayerCode(f"{use.me}({use.x})", f"nn.GroupNorm({words})", setup, weights)


MEMBERS = (
    LayerWriter("BatchNormalization", normalize_batch, "first", passes_mask=True),
    LayerWriter("LayerNormalization", normalize_last, "last", passes_mask=True),
    LayerWriter("GroupNormalization", normalize_groups, "first", passes_mask=True),
    LayerWriter("InstanceNormalization", normalize_instances, "first", passes_mask=True),
)
