"""An experiment: does attention use padding, and nothing else?

torch's masks are True for positions to leave out; those of other libraries are True for positions to keep. An inverted
padding mask hides every word and shows the padding. The copy is run once, and the masks that its attention gets are
compared with the padding at the ends of the ids. Where the attention is no layer of torch, words of rows with padding
are exchanged, and then the ids of their padding: an output that only the padding moves has lost the words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg.capture.experiments.experiment import Bench, Experiment
from neuraldbg.capture.guest.module_tree import add_hook, walk
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.statistics.sample_hashes import padded

if TYPE_CHECKING:
    from collections.abc import Callable

_MASKS = ("key_padding_mask", "src_key_padding_mask")
_AT = {nn.MultiheadAttention: 3, nn.TransformerEncoderLayer: 2, nn.TransformerEncoder: 2}
"""Position of the mask among the positional arguments."""
_HIDDEN = -1e4
"""A floating mask is added to the scores: a score below this leaves nothing."""
_NEARLY = 0.95
_WORDS = 4
"""Different words that a batch must have, to exchange them."""
_ROUNDING = 1e-6
"""Change of an output, relative to the largest, up to which it is rounding."""


def run(bench: Bench) -> dict[str, Any] | None:
    """Compare the masks with the padding."""
    ids = next((x for _, x in bench.inputs() if not x.is_floating_point() and x.dim() == 2), None)
    padding = padded(ids) if ids is not None and not ids.is_complex() else None
    if padding is None or ids is None:
        return None
    seen: list[tuple[str, str, Tensor]] = []
    handles = []
    for path, module in walk(bench.module):
        if is_a(module, tuple(_AT)):
            handles.append(add_hook(module, "_forward_pre_hooks", _look(seen, path), kwargs=True))
    if not handles:
        return _by_words(bench, ids, padding)
    try:
        bench.call()
    finally:
        for handle in handles:
            handle.remove()
    fitting = [(path, kind, mask) for path, kind, mask in seen if mask.shape == padding.shape]
    wrong = [(path, kind) for path, kind, mask in fitting if _inverted(mask, padding)]
    layer, kind = wrong[-1] if wrong else (None, "")  # the innermost of nested modules is called last
    return {"inverted": bool(wrong), "layer": layer, "type": kind, "masks": len(fitting)} if fitting else None


def _by_words(bench: Bench, ids: Tensor, padding: Tensor) -> dict[str, Any] | None:
    """Exchange the words of the rows with padding; return a finding if that moves no output, and other ids in the place
    of the padding do.
    """
    rows, n = padding.sum(1) > 1, len(padding)
    words = ids[~padding]
    if not bool(rows.any()) or len(words.unique()) < _WORDS:
        return None
    with _Choices() as choices:
        base = _of_rows(bench.call(), rows, n)
    if not choices.seen:
        return None  # nothing chooses among the positions, so that there is nothing to mask
    other, filled = ids.clone(), ids.clone()
    other[~padding] = words.roll(max(1, len(words) // 3))
    filled[padding] = words[: int(padding.sum())] if int(padding.sum()) <= len(words) else words[0]
    if not base or torch.equal(other[rows], ids[rows]):
        return None
    if not _same(base, _of_rows(bench.call(lambda _, x: other if x is ids else x), rows, n)):
        return None
    if _same(base, _of_rows(bench.call(lambda _, x: filled if x is ids else x), rows, n)):
        return None  # nothing of the ids is used
    return {"inverted": True, "layer": None, "type": "", "masks": 0}


class _Choices(TorchDispatchMode):
    """Sees if a pass chooses among positions: a softmax, or attention."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name  # noqa: SLF001 (an operator's only name)
        self.seen = self.seen or "softmax" in name or "attention" in name
        return func(*args, **(kwargs or {}))


def _of_rows(outputs: list[tuple[str, Tensor]], rows: Tensor, n: int) -> list[Tensor]:
    """Return the part of the outputs that belongs to some rows, of those that have one for each sample and no position
    for each token.
    """
    return [x[rows] for _, x in outputs if x.dim() and x.shape[0] == n and rows.shape[0] == n]


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and bool(((a - b).abs() <= _ROUNDING * (a.abs().max() + 1e-12)).all())
        for a, b in zip(one, other, strict=True)
    )


def _look(seen: list[tuple[str, str, Tensor]], path: str) -> Callable[..., None]:
    def look(module: nn.Module, args: Any, kwargs: Any) -> None:
        at = next(at for kind, at in _AT.items() if issubclass(type(module), kind))
        named = [kwargs.get(name) for name in _MASKS] + [args[at] if len(args) > at else None]
        mask = next((x for x in named if is_a(x, Tensor)), None)
        if mask is not None and mask.dim() == 2:
            hidden = mask if mask.dtype is torch.bool else mask < _HIDDEN
            seen.append((path, type(module).__name__, hidden.detach().clone()))

    return look


def _inverted(hidden: Tensor, padding: Tensor) -> bool:
    """Return True if, in the rows with padding, the mask hides the words and shows the padding."""
    rows = padding.sum(1) > 1
    words, rest = hidden[rows][~padding[rows]], hidden[rows][padding[rows]]
    if not words.numel() or not rest.numel():
        return False
    return float(words.float().mean()) > _NEARLY and float(rest.float().mean()) < 1 - _NEARLY


EXPERIMENT = Experiment("padding_mask", run, forwards=3)
