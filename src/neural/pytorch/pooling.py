"""Pooling: of windows, of the whole input, and to a given size."""

from __future__ import annotations

from functools import partial

from neural.pytorch.layer_code import LayerCode, LayerWriter, Layout, Use, arguments, sizes_text
from neural.pytorch.padding import pad_arguments, same

NAMES = {"Max": "Max", "Average": "Avg"}


def pool(kind: str, rank: int, use: Use) -> LayerCode:
    """Return a window; torch's ceil_mode is Keras's `same` where one side gets more than the other."""
    values, x = use.values, use.x
    size = values["pool_size"]
    strides = values["strides"] or size
    pairs: tuple[tuple[int, int], ...] | None = ((0, 0),) * rank
    if values["padding"] == "same":
        pairs = same(use.shape[:-1], size, strides, (1,) * rank)
    padding, ceil = None, None
    if pairs is None:
        if kind == "Average":
            words = arguments(tuple(size), tuple(strides))
            return LayerCode(f"{use.me}({x})", f"SameAveragePool({words})", helpers=("SameAveragePool", "pad_same"))
        x = f'pad_same({x}, {tuple(size)}, {tuple(strides)}, value=float("-inf"))'
    elif any(map(any, pairs)):
        uneven = [left != right for left, right in pairs]
        whole = all(not odd or stride > 1 for odd, stride in zip(uneven, strides, strict=True))
        exact = all(
            odd or (n is not None and (n + left + right - k) % stride == 0)
            for odd, n, (left, right), k, stride in zip(uneven, use.shape[:-1], pairs, size, strides, strict=True)
        )
        if not any(uneven) or (whole and exact):
            padding = sizes_text(tuple(left for left, _ in pairs)) if any(left for left, _ in pairs) else None
            ceil = True if any(uneven) else None
        elif kind == "Average":
            words = arguments(tuple(size), tuple(strides))
            return LayerCode(f"{use.me}({x})", f"SameAveragePool({words})", helpers=("SameAveragePool", "pad_same"))
        else:
            x = f'F.pad({x}, {pad_arguments(pairs)}, value=float("-inf"))'
    words = arguments(
        sizes_text(size),
        stride=None if strides == size else sizes_text(strides),
        padding=padding,
        ceil_mode=ceil,
        count_include_pad=False if kind == "Average" and (padding or ceil) else None,
    )
    helpers = ("pad_same",) if pairs is None else ()
    return LayerCode(f"{use.me}({x})", f"nn.{NAMES[kind]}Pool{rank}d({words})", helpers=helpers)


def pool_all(kind: str, rank: int, use: Use) -> LayerCode:
    """Return one value for each channel: the mean or the largest; empty places do not count in a mean."""
    wire = use.inputs[0]
    axes = wire.space_axes
    keep = ", keepdim=True" if use.values["keepdims"] else ""
    if kind == "Max":
        return LayerCode(f"{use.x}.amax(dim={_axes(axes)}{keep})", comment=use.layer.name)
    if rank == 1 and wire.mask:
        call = f"masked_mean({use.x}, {wire.mask}{keep})"
        return LayerCode(call, helpers=("masked_mean",), comment=use.layer.name)
    return LayerCode(f"{use.x}.mean(dim={_axes(axes)}{keep})", comment=use.layer.name)


def _axes(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else str(axes)


def pool_to(kind: str, rank: int, use: Use) -> LayerCode:
    """Return as many windows as asked for."""
    words = sizes_text(use.values["output_size"])
    return LayerCode(f"{use.me}({use.x})", f"nn.Adaptive{NAMES[kind]}Pool{rank}d({words})")


def _last_if_one(kind: str, rank: int) -> LayerWriter:
    # The mask of a sequence has its steps where the layout of the language has them.
    layout: Layout = "last" if rank == 1 and kind == "Average" else "any"
    return LayerWriter(f"Global{kind}Pooling{rank}D", partial(pool_all, kind, rank), layout)


MEMBERS = tuple(
    member
    for kind in NAMES
    for rank in (1, 2, 3)
    for member in (
        LayerWriter(f"{kind}Pooling{rank}D", partial(pool, kind, rank), "first"),
        _last_if_one(kind, rank),
        LayerWriter(f"Adaptive{kind}Pooling{rank}D", partial(pool_to, kind, rank), "first"),
    )
)
