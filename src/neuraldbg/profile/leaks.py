"""Memory that does not come back: tensors, arrays and hooks that a line of the program adds to from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.measures import size
from neuraldbg.nouns.profile import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns.facts.growth import Survivors
    from neuraldbg.profile.finder import Measured

_HOOK = "hook"
_LONG = 2_000
"""Steps from which on resident or device memory that grows is a leak where nothing was found that is kept."""
_STEPS = 1_000
"""Steps for which the growth is told as well: that of one step says little."""


def bottlenecks(measured: Measured) -> Iterator[Bottleneck]:
    """Return one bottleneck for each kind of what lives on, that of most bytes first."""
    growth = measured.growth
    if growth is None:
        return
    for one in growth.survivors:
        yield Bottleneck("leak", _text(one), _remedy(one))
    first, last = growth.slope_steps
    if growth.survivors or not (growth.searched or growth.by_hand) or last - first < _LONG:
        return
    for what, grown in growth.risen().items():
        text = f"{what} grows by {size(grown)} a step, and no tensor or array was found that the program keeps"
        remedy = "Look outside of tensors: lists of Python objects, a data loader's workers, native libraries"
        if growth.by_hand:  # nobody has searched
            text = f"{what} grows by {size(grown)} a step, from step {first:,} to {last:,}"
            remedy = "Look for lists, dictionaries and caches that each step adds to, such as losses kept as arrays"
        yield Bottleneck("leak", text, remedy)


def _text(one: Survivors) -> str:
    """Write what grows, by how much, and where: "`losses` keeps one tensor with its graph (float32, one number) of each
    step, 64 B and 6 operations of autograd's graph: train.py:48".
    """
    often = "of each step" if one.per_step >= 0.75 else f"every {round(1 / max(one.per_step, 1e-3))} steps"
    if one.type == _HOOK:
        text = f"`{one.holder}` gets a hook in each step, and none is removed; there are {one.alive:,}"
    else:
        shape = "x".join(map(str, one.shape)) or "one number"
        what = {"Tensor": "a tensor", "Tensor with its graph": "a tensor with its graph", "ndarray": "an array"}
        kind = what.get(one.type, f"{'an' if one.type[:1] in 'AEIOU' else 'a'} {one.type}")
        told = f" ({one.dtype}, {shape})" if one.dtype else ""
        if one.grows:
            text = f"`{one.holder}`, {kind}{told}, becomes larger by {size(one.bytes_per_step)} a step"
        elif one.with_graph and one.alive == 1:
            text = f"the graph of `{one.holder}`{told} reaches back over all steps, by {_amounts(one, 1.0)} a step"
        else:
            # Of each of them, not of a step.
            each = _amounts(one, one.per_step if one.per_step > 0 else 1.0)
            text = f"`{one.holder or 'something'}` keeps {kind}{told} {often}, {each} each"
    if one.bytes_per_step * _STEPS >= 1 << 20:
        text += f", {size(one.bytes_per_step * _STEPS)} in {_STEPS:,} steps"
    if one.kept is not None:
        text += f": {one.kept.file.replace(chr(92), '/').rpartition('/')[2]}:{one.kept.number}"
    return text


def _amounts(one: Survivors, number: float) -> str:
    """Write the bytes and operations of a step, divided by a number: "3 MiB and 12 operations of autograd's graph"."""
    weight, operations = one.bytes_per_step / number, one.operations_per_step / number
    parts = [size(weight)] if weight >= 1 else []
    parts += [f"{operations:.0f} operations of autograd's graph"] if operations >= 1 else []
    return " and ".join(parts) or "a little"


def _remedy(one: Survivors) -> str:
    if one.type == _HOOK:
        return "Register the hook once, before the loop, or keep its handle and call handle.remove()"
    if one.with_graph and one.mended:
        return one.mended
    if one.with_graph:
        return "Keep a number, loss.item(), or the tensor without its graph, x.detach()"
    if one.holder:
        return f"Empty `{one.holder}` when its content is not needed any more, or limit its length"
    return ""
