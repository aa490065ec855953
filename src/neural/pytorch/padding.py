"""Places that `padding="same"` adds on both sides of an axis, as Keras counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neural.plan import Shape


def same(
    space: Shape, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[tuple[int, int], ...] | None:
    """Return what is added before and after each axis, None if it depends on the data."""
    found = []
    for size, width, stride, dilation in zip(space, kernel, strides, dilations, strict=True):
        reach = (width - 1) * dilation + 1
        if stride == 1:
            total = reach - 1
        elif size is None:
            return None
        else:
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        found.append((total // 2, total - total // 2))
    return tuple(found)


def pad_arguments(pairs: Iterable[tuple[int, int]]) -> str:
    """Return the argument of `F.pad`, which counts the axes from the last one."""
    numbers = [number for pair in reversed(list(pairs)) for number in pair]
    return f"({', '.join(map(str, numbers))})"
