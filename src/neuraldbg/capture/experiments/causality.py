"""An experiment: does a model that predicts the next token see the tokens that it is to predict?

Tried only if the targets are the inputs shifted by one, so that no position may depend on later ones; a bidirectional
encoder has other targets. Every token after a position is exchanged, and no output up to the position may change. If
one does, the tokens of every other sample alone are exchanged: outputs of the samples between that change then are no
leak of the future, but samples that are mixed. Else the first layer whose output changes is named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.experiments.experiment import Bench, Experiment, Target
from neuraldbg.capture.experiments.sample_mixing import meeting
from neuraldbg.capture.guest.module_tree import add_hook, walk
from neuraldbg.capture.guest.purity import Unfit
from neuraldbg.capture.statistics.nested_tensors import leaves

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Self

_AGREE = 0.99
"""Share of the targets that must be the next input: some are masked, a last one may be cut."""
_SHORT = 4
_LABELS = ("label", "target", "lm_y")
_KINDS = 3
"""Different tokens that a batch must hold, so that a match is not chance."""
_HELD = 50_000_000
"""Numbers of the layers' outputs that are kept at most."""
_MOVED = 1e-3
"""Change relative to the change of the positions that may change."""
_NOISE = 1e-5


def run(bench: Bench) -> dict[str, Any] | None:
    """Exchange the tokens after the middle, and return the change before it."""
    found = _sequence(bench)
    if found is None:
        return None
    leaf, ids, keep, time_first, target = found
    n, length = ids.shape
    at = length // 2
    used = keep[:, : at + 1]
    # Without a counted position before the cut, a change there would prove nothing.
    if not bool(used.any()):
        raise Unfit("the loss counts no position of the first half")
    later = ids[:, at + 1 :]
    other = later.flip(0).roll(1, 1) if n > 1 else later.roll(1, 1)
    if torch.equal(other, later):
        return None

    form = _Form(n, length, time_first, target)
    swap = _Exchange(leaf, ids, torch.cat([ids[:, : at + 1], other], 1), time_first, slice(None))
    with _Trail(bench.module, form) as trail:
        before = bench.call()
        seen = trail.take()
        after = bench.call(swap)
        moved_at = trail.first_moved(seen, at, used)
    # The outputs decide; the layers only say where the change begins.
    share = _share(bench, before, after, form, used)
    if share is None:
        return None
    leaks = share > 0
    across = leaks and _across(bench, swap, before, form, used)
    named = moved_at if leaks and not across else None
    return {
        "leaks": leaks,
        "length": int(length),
        "at": int(at),
        "share": share,
        "layer": (named[0] or None) if named else None,
        "type": named[1] if named else "",
        "across": across,
        "place": _meets(bench, swap, n) if across else None,
    }


@dataclass(frozen=True)
class _Exchange:
    """A change of the arguments: other ids for some samples. Other inputs, such as a mask, stay."""

    leaf: str
    ids: Tensor
    """The ids as they are, shape (N, T)."""
    other: Tensor
    """The ids that replace them."""
    time_first: bool
    """True if the model is given (T, N)."""
    rows: slice
    """The samples whose ids are replaced."""

    def __call__(self, name: str, x: Tensor) -> Tensor:
        if name != self.leaf:
            return x
        put = self.ids.clone()
        put[self.rows] = self.other[self.rows]
        return (put.T.contiguous() if self.time_first else put).to(x.dtype)


def _across(bench: Bench, swap: _Exchange, before: Outputs, form: _Form, used: Tensor) -> bool:
    """Return True if later tokens of every other sample change outputs up to the position for the samples between."""
    odd = torch.zeros_like(used)
    odd[1::2] = used[1::2]
    if form.n < 2 or not bool(odd.any()):
        return False
    try:
        after = bench.call(replace(swap, rows=slice(0, None, 2)))
    except Unfit:  # no time is left: what is known by now stays
        return False
    return bool(_share(bench, before, after, form, odd))


def _meets(bench: Bench, swap: _Exchange, n: int) -> dict[str, Any] | None:
    """Return the place where samples mix, found by other ids for one of them."""
    rolled = replace(swap, other=swap.ids.roll(1, 0))
    for j in sorted({0, n // 2, n - 1}):
        if not torch.equal(rolled.other[j], rolled.ids[j]):
            return meeting(bench, replace(rolled, rows=slice(j, j + 1)), j, n)
    return None


def shifted(ids: Tensor, target: Tensor) -> Tensor | None:
    """Return the positions of the ids, shape (N, T), that count in a loss whose targets are the next ids; None if the
    targets are other values. Targets may be (N, T), (N, T - 1) or flattened.
    """
    n, length = ids.shape
    for width in (length, length - 1):
        if target.numel() != n * width or width < _SHORT:
            continue
        want = target.reshape(n, width)
        given = ids[:, 1 : width + 1] if width == length - 1 else ids[:, 1:]
        compared = want[:, : given.shape[1]]
        counts = compared >= 0
        if not bool(counts.any()) or len(torch.unique(given)) < _KINDS:
            continue
        if float((compared == given)[counts].float().mean()) < _AGREE:
            continue
        if float((compared == ids[:, : compared.shape[1]])[counts].float().mean()) >= _AGREE:
            continue  # a constant text: the targets equal the inputs as well
        keep = torch.zeros_like(ids, dtype=torch.bool)
        keep[:, :width] = want >= 0
        return keep
    return None


Outputs = list[tuple[str, Tensor]]
"""The outputs of a pass, as ``Bench.call`` returns them."""
Found = tuple[str, Tensor, Tensor, bool, Target]
"""(name of the argument, its ids as (N, T), positions that count, True if they were given as (T, N), the targets)."""


def _sequence(bench: Bench) -> Found | None:
    """Return the input ids whose next ones are the targets.

    A translation that copies has two such inputs, the source and the decoder's input: the later one counts. Labels that
    are passed beside equal ids are no input.
    """
    found: list[Found] = []
    for name, x in bench.inputs():
        if x.is_floating_point() or x.dtype is torch.bool or x.dim() != 2 or min(x.shape) < 1:
            continue
        one = next((one for t in bench.targets if (one := _matched(name, x, t)) is not None), None)
        if one is not None:
            found.append(one)
    inputs = [one for one in found if not any(word in one[0] for word in _LABELS)] or found
    inputs = [one for i, one in enumerate(inputs) if not any(torch.equal(one[1], other[1]) for other in inputs[:i])]
    return inputs[-1] if inputs else None


def _matched(name: str, x: Tensor, of: Target) -> Found | None:
    """Compare ids with a target, along axis 1 and then along axis 0, where modules of torch expect time."""
    target = of.value
    if target is None:
        return None
    if x.shape[1] >= _SHORT and (keep := shifted(x, target)) is not None:
        return name, x, keep, False, of
    length, n = x.shape
    if length < _SHORT or target.numel() not in (length * n, (length - 1) * n):
        return None
    turned = x.T.contiguous()
    keep = shifted(turned, target.reshape(-1, n).T)
    return (name, turned, keep, True, of) if keep is not None else None


@dataclass(frozen=True)
class _Form:
    """The number of samples and positions of a batch, which axis comes first, and the targets."""

    n: int
    length: int
    time_first: bool
    target: Target

    def as_read(self, bench: Bench, name: str, output: Tensor) -> Tensor | None:
        """Return the scores in the order in which the loss pairs them with the ids, shape (N, T, C), or (N, T - 1, C)
        where the last token has no next one; None if the way from the output to the loss is not known.
        """
        rows = self.target.scores(bench.model, name, output)
        if rows is None or len(rows) % self.n:
            return None
        if self.time_first:
            return rows.reshape(-1, self.n, rows.shape[1]).transpose(0, 1)
        return rows.reshape(self.n, -1, rows.shape[1])


def _by_position(x: Tensor, form: _Form) -> Tensor | None:
    """Return an output in shape (N, T, features), None if it has no value for each position."""
    n, length = form.n, form.length
    if form.time_first and x.dim() >= 2 and tuple(x.shape[:2]) == (length, n):
        return x.reshape(length, n, -1).transpose(0, 1)
    if form.time_first and x.dim() == 2 and x.shape[0] == n * length:
        return x.reshape(length, n, -1).transpose(0, 1)
    if x.dim() >= 2 and tuple(x.shape[:2]) == (n, length):
        return x.reshape(n, length, -1)
    if x.dim() == 3 and x.shape[0] == n and x.shape[2] == length and x.shape[1] != length:
        return x.transpose(1, 2)
    if x.dim() == 3 and tuple(x.shape[:2]) == (length, n):
        return x.transpose(0, 1)
    if x.dim() == 2 and x.shape[0] == n * length:
        return x.reshape(n, length, -1)
    return None


def _changes(a: Tensor, b: Tensor, at: int, used: Tensor) -> tuple[float, float, float]:
    """Return the largest change up to the position, the largest after it, and the share of positions up to it that
    changed. Only positions that count in the loss are compared.
    """
    change = (b.double() - a.double()).abs().nan_to_num(posinf=0.0).amax(2)
    scale = float(a.double().nan_to_num().square().mean().sqrt())
    before, after = change[:, : at + 1], change[:, at + 1 :]
    edge = max(_MOVED * float(after.max()), _NOISE * scale)
    hit = (before > edge) & used
    return float(before.max()), float(after.max()), float(hit.sum()) / max(1, int(used.sum()))


def _share(bench: Bench, before: Outputs, after: Outputs, form: _Form, used: Tensor) -> float | None:
    """Return the share of positions up to the cut that changed, None if no output belongs to positions.

    Axes of one size, and a loss that is given the output in another order, deceive an eye that sees shapes alone: where
    the way to the loss is known, outputs must have changed in its order as well.
    """
    best: float | None = None
    at = used.shape[1] - 1
    for (name, a), (_, b) in zip(before, after, strict=True):
        x, y = _by_position(a, form), _by_position(b, form)
        if x is None or y is None or x.shape != y.shape or not bool(y.isfinite().all()):
            continue
        share = _changes(x, y, at, used)[2]
        read, again = form.as_read(bench, name, a), form.as_read(bench, name, b)
        if read is not None and again is not None and read.shape[1] > at + 1:
            share = min(share, _changes(read, again, at, used)[2])
        best = max(best or 0.0, share)
    return best


Seen = tuple[str, str, "Tensor | None", Tensor]
"""(path, type, input by position, output by position)."""


class _Trail:
    """Keeps the outputs of the copy's layers by position, in the order of their calls, for two passes."""

    def __init__(self, module: nn.Module, form: _Form) -> None:
        self.module, self.form = module, form
        self.seen: list[Seen] = []
        self._handles: list[Any] = []
        self.size = 0

    def __enter__(self) -> Self:
        for path, module in walk(self.module):
            if path:
                self._handles.append(add_hook(module, "_forward_hooks", self._look(path)))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _look(self, path: str) -> Any:
        def look(module: nn.Module, args: Any, output: Any) -> None:
            made, given = self._read(output), self._read(args)
            if made is not None and self.size < _HELD:
                self.seen.append((path, type(module).__name__, given, made))

        return look

    def _read(self, value: Any) -> Tensor | None:
        x = next((x for _, x in leaves(value) if x.is_floating_point()), None)
        x = _by_position(x, self.form) if x is not None else None
        if x is None:
            return None
        self.size += x.numel()
        return x.detach().clone()

    def take(self) -> list[Seen]:
        """Return the outputs of a pass, and begin the next pass."""
        seen, self.seen, self.size = self.seen, [], 0
        return seen

    def first_moved(self, before: list[Seen], at: int, used: Tensor) -> tuple[str, str] | None:
        """Return the layer that leaks the future: the first whose output changed up to the position, or the layer
        around it if its input had changed already, since then the forward of that layer did it.
        """
        for (path, kind, given, made), (again, _, given2, made2) in zip(before, self.seen, strict=False):
            if path != again or made.shape != made2.shape:
                return None
            if _changes(made, made2, at, used)[2] > 0:
                if given is None or given2 is None or _changes(given, given2, at, used)[2] == 0:
                    return path, kind
                around = path.rpartition(".")[0]
                return around, type(self.module.get_submodule(around)).__name__
        return None


EXPERIMENT = Experiment("causality", run, forwards=3)
