"""The reader of second moments of adaptive optimizers: do they follow the gradient, and are they below epsilon?

Adam divides each element's step by sqrt(v) + eps, with v a running mean of the squared gradient. Samples of four
weights' states are read after a step, while their gradients exist: in the first steps, and at every 64th.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from neuraldbg.capture.guest.module_tree import group_tensors, groups, state_of
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import filled, is_a, item, sequence
from neuraldbg.capture.parameters.weight_samples import ELEMENTS, STREAMS, chosen, joined
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.statistics.watched_parameter import Watched

EVERY = 64
"""Steps between two readings of the state."""
KEYS = ("exp_avg_sq", "square_avg")
"""Keys under which torch's optimizers, and most others, store the second moment: Adam's kind, RMSprop."""


class Moment(NamedTuple):
    """The second moment of one weight, with the numbers that belong to it."""

    key: str
    state: Tensor
    gradient: Tensor
    correction: float
    """Divisor of the state: Adam's correction of the bias towards zero."""
    eps: float


class SecondMoments(Reader):
    """Reads samples of the second moment of each optimizer."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._fresh: set[int] | None = None
        """Optimizers that were read since the last gap; None if there was none."""
        self._members: dict[int, list[tuple[Watched, int]]] = {}
        """Sampled parameters of each optimizer, with the index of their group."""

    def resumes(self) -> None:
        """Begin after a gap: few steps are seen between two gaps, so the first one is read."""
        self._fresh = set()

    def step_ends(self, stream: Stream, opt: Optimizer) -> None:
        """Compare the second moment with the gradient and with epsilon."""
        reading = self.scene.reading
        if not reading and (stream.steps % EVERY if self._fresh is None else stream.index in self._fresh):
            return
        if self._fresh is not None:
            self._fresh.add(stream.index)
        if reading or stream.index not in self._members:
            places = {id(t): i for i, group in enumerate(groups(opt)) for t in group_tensors(group)}
            members = chosen(self.scene.params, opt)
            self._members[stream.index] = [(w, places[w.key]) for w in members]
            while len(self._members) > STREAMS:
                del self._members[min(index for index in self._members if index != stream.index)]
        groups_now = groups(opt)
        moments = (_moment(opt, w, groups_now[i]) for w, i in self._members[stream.index] if i < len(groups_now))
        found = [moment for moment in moments if moment is not None]
        if found and (reading or not placement.lies(found[0].state)):
            self._read(stream, found, reading=reading)

    @np.errstate(all="ignore")
    def _read(self, stream: Stream, found: list[Moment], *, reading: bool) -> None:
        gradients = joined([m.gradient for m in found], [m.state for m in found])
        states = joined([m.state for m in found], [m.gradient for m in found])
        ends = np.cumsum([min(m.state.numel(), ELEMENTS) for m in found])
        worst, shares, typical = math.nan, [], []
        for i, m in enumerate(found):
            part = slice(int(ends[i - 1]) if i else 0, int(ends[i]))
            root = np.sqrt(np.maximum(states[part] / m.correction, 0.0))
            alive = root > 0
            if not alive.any() or not np.isfinite(root).all():
                continue
            ratio = float(np.sqrt(((gradients[part][alive] / root[alive]) ** 2).mean()))
            worst = ratio if not ratio <= worst else worst
            if reading:
                shares.append(float((root[alive] <= m.eps).mean()))
                typical.append(float(np.median(root[alive])))
        if math.isfinite(worst):
            self.scene.scalars["second_moment_ratio"] = worst
        if reading:
            self._log(stream, found[0], len(found), shares, typical)

    def _log(self, stream: Stream, first: Moment, params: int, shares: list[float], typical: list[float]) -> None:
        fact: dict[str, Any] = {
            "stream": stream.index,
            "key": first.key,
            "dtype": str(first.state.dtype).removeprefix("torch."),
            "eps": first.eps,
            "eps_kept": float(torch.tensor(first.eps, dtype=first.state.dtype)),
            "params": params,
        }
        if shares:
            fact["below_eps"] = round(float(np.median(shares)), 3)
            fact["typical"] = float(f"{float(np.median(typical)):.3g}")
        self.scene.log(FactKey.OPTIMIZER_STATE, fact)

    def stop(self) -> None:
        """Drop the parameters."""
        self._members.clear()


def _moment(opt: Optimizer, w: Watched, group: dict[str, Any]) -> Moment | None:
    """Return a weight's second moment, None if the optimizer stores none in the usual form."""
    known = state_of(opt, w.ref)
    gradient, eps = w.ref.grad, number(item(group, "eps"))
    if not filled(known) or gradient is None or eps is None:
        return None
    key = KEYS[0] if item(known, KEYS[0]) is not None else KEYS[1]
    state = item(known, key)
    if not operation.observable(state) or not operation.observable(gradient) or state.shape != gradient.shape:
        return None
    correction = 1.0
    betas, count = list(sequence(item(group, "betas"))), item(known, "step")
    beta2 = number(betas[1]) if len(betas) > 1 else None
    if key == KEYS[0] and beta2 is not None and count is not None:
        # Reading the count would synchronise another device, and after some hundred steps it makes no difference.
        late = is_a(count, Tensor) and not count.is_cpu
        taken = math.inf if late else number(count) or 0.0
        correction = 1 - beta2**taken if 0 < beta2 < 1 else 1.0
    return Moment(key, state.detach(), gradient.detach(), max(correction, 1e-12), eps)


READER = SecondMoments
