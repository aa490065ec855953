"""Histograms of values, in a few steps: tensors in, counts by site out.

Counted are activations, output gradients, inputs, operands, and for stepped parameters weights, gradients and updates:
on the CPU, in eager mode, over the sample of about ``block_cap`` elements that the other statistics are of (for a
parameter's gradient over all its elements). There are none for tensors of compiled graphs and other devices, for
parameters that no optimizer steps, nor for gradients that an optimizer is still to divide by a loss scale.

A bin is a power of two, which is the exponent in the bits of a number: nothing is rounded, and no random number drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from neuraldbg.capture.guest.native import native
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.nouns.histogram import HIGHEST, LOWEST, StepHistograms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from neuraldbg.capture.statistics.watched_parameter import Watched

APART, GROWTH = 8, (1, 2)
"""Distance from one step with histograms to the next: steps at least, and at least this share of the steps so far. That
makes 13 in the first thousand steps and 30 in the first million: one costs as much as some twenty full steps without
it, since native hooks leave it to Python."""
_TRIES = 4
"""Full steps after one with histograms in which each other optimizer may get its own: the budget's bursts of full steps
often begin with the same optimizer."""
_CODES = 512
"""Number of codes of a float32: the sign and eight bits of exponent."""
_BIAS = 127
_ENDS = (0, *range(_BIAS + LOWEST, _BIAS + HIGHEST + 1), 255)
"""The first code of: values that count as zero, each bin, values that are not finite."""
_STARTS = (*_ENDS, *(code + _CODES // 2 for code in _ENDS))


def _narrowed_codes() -> npt.NDArray[np.int64]:
    """Return the float32 code for each sign and exponent of a float64, shape (4096,)."""
    exponent = np.clip(np.arange(2048) - 1023 + _BIAS, 0, 254)
    exponent[2047] = 255  # NaN and infinity
    return np.concatenate([exponent, exponent + _CODES // 2])


_NARROWED = _narrowed_codes()


class Binning:
    """Collects the histograms of a step, if the step has them."""

    def __init__(self, cap: int) -> None:
        self.on = False
        """True while the current step has histograms."""
        self._cap = cap
        self._step = self._next = 0
        self._counts: dict[int, npt.NDArray[np.int64]] = {}
        """Counts by row, shape (_CODES,)."""
        self._before: dict[int, Tensor] = {}
        """A sample of each weight from before the step, by the row of its update."""
        self._known: set[int] = set()
        """Optimizers that have stepped, each as the row of its first update."""
        self._stepped: set[int] = set()
        """Optimizers that stepped in this step."""
        self._owed: dict[int, int] = {}
        """Optimizers without a part in the last step with histograms, and full steps left to try for each."""

    def begin(self, step: int) -> bool:
        """Begin a full step. Return True if it has histograms."""
        self.on = step >= self._next or bool(self._owed)
        self._step = step
        self._stepped = set()
        self._forget()
        return self.on

    def until(self, step: int) -> int:
        """Return the first step from ``step`` on that has histograms, as far as is known."""
        return step if self._owed else max(step, self._next)

    def add(self, row: int, x: Tensor) -> None:
        """Count the elements of a readable tensor, or of a sample of it, for a site."""
        if not operation.transforming():
            counts = count_sample(x, self._cap)
            known = self._counts.get(row)
            self._counts[row] = counts if known is None else known + counts

    def reset(self, rows: Iterable[int]) -> None:
        """Drop the counts of some sites."""
        for row in rows:
            self._counts.pop(row, None)

    def weights(self, watched: Iterable[Watched]) -> None:
        """Count weights before a step, and keep a sample of each until after it."""
        if not self.on:
            return
        for w in watched:
            held = _here(w.ref) if w.param is not None and w.update is not None else None
            if held is not None and w.param is not None and w.update is not None:
                self._counts[w.param] = count_sample(held, self._cap)
                self._before[w.update] = operation.sample(held.detach(), self._cap).clone()

    def gradients(self, watched: Iterable[Watched], scale: Tensor | float) -> None:
        """Count final gradients, unless they are still to be divided by a loss scale."""
        if not self.on or not isinstance(scale, float) or scale != 1.0:
            return
        for w in watched:
            held = _here(w.ref.grad)
            if w.grad is not None and held is not None:
                self._counts[w.grad] = count_sample(held, self._cap)

    def updates(self, watched: Sequence[Watched]) -> None:
        """Count the changes that a step made."""
        own = next((w.update for w in watched if w.update is not None), None)
        if own is not None:
            self._known.add(own)
            self._stepped.add(own)
        if not self.on:
            return
        for w in watched:
            held = _here(w.ref) if w.update in self._before else None
            if held is None or w.update is None:
                continue
            before, now = self._before.pop(w.update), operation.sample(held.detach(), self._cap)
            if now.shape == before.shape:
                self._counts[w.update] = count_flat(_wide(now) - _wide(before))

    def take(self) -> StepHistograms | None:
        """Return the counts of the step, None if it has no histograms."""
        if not self.on:
            return None
        self.on = False
        self._owed = {own: tries - 1 for own, tries in self._owed.items() if own not in self._stepped and tries > 1}
        if self._step >= self._next:
            share, of = GROWTH
            self._next = self._step + max(APART, -(-self._step * share // of))
            self._owed = dict.fromkeys(self._known - self._stepped, _TRIES)
        counted = self._counts
        self._forget()
        if not counted:
            return None
        return StepHistograms.of(self._step, list(counted), binned(np.stack(list(counted.values()))))

    def _forget(self) -> None:
        self._counts, self._before = {}, {}


def _here(x: Tensor | None) -> Tensor | None:
    """Return the CPU tensor whose values can be read now for ``x``, None if there is none."""
    held = operation.shown(x)
    return held if held is not None and not placement.lies(held) and not operation.transforming() else None


def _wide(flat: Tensor) -> Tensor:
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()


def count_sample(x: Tensor, cap: int) -> npt.NDArray[np.int64]:
    """Count the values of a CPU tensor, or a sample of about ``cap`` of them, by code, shape (_CODES,)."""
    counts = native.exponents(x, cap) if native is not None else None
    return count_flat(operation.sample(x.detach(), cap)) if counts is None else np.frombuffer(counts, np.int64)


def count_flat(flat: Tensor) -> npt.NDArray[np.int64]:
    """Count the values of a 1-D tensor by sign and exponent, shape (_CODES,)."""
    values = operation.numbers(_wide(flat))
    if values.dtype == np.float64:
        return np.bincount(_NARROWED[(values.view(np.int64) >> 52) & 4095], minlength=_CODES)
    return np.bincount(values.view(np.uint32) >> 23, minlength=_CODES)


def binned(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sum counts by code, shape (S, _CODES), up to bins, shape (S, BINS)."""
    summed = np.add.reduceat(counts, _STARTS, axis=1)
    above, below = summed[:, : len(_ENDS)], summed[:, len(_ENDS) :]
    return np.concatenate([below[:, -2:0:-1], above[:, :1] + below[:, :1], above[:, 1:-1]], axis=1)
