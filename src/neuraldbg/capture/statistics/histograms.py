"""Histograms of what is read, in a few steps: tensors in, counts by site out.

Taken are activations, gradients at outputs, inputs, operands, and of what an optimizer steps weights, gradients and
updates: on the CPU, in eager mode, of the sample of about ``block_cap`` elements that the other statistics are of
(those of a parameter's gradient are of all its elements). There is none of what compiled graphs and other devices
hold, of parameters that no optimizer steps, nor of gradients that an optimizer is still to divide by a loss scale.

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

_APART, _GROWTH = 8, (1, 2)
"""From one step with histograms to the next: steps at least, and at least this share of the steps so far. That makes 13
in the first thousand steps and 30 in the first million: one costs what some twenty full steps without it do, since
native hooks leave it to Python."""
_TRIES = 4
"""Full steps that may follow one with histograms, until each other optimizer has had its own: the governor's bursts
often begin with the same one."""
_CODES = 512
"""Codes of a float32: the sign and eight bits of exponent."""
_BIAS = 127
_ENDS = (0, *range(_BIAS + LOWEST, _BIAS + HIGHEST + 1), 255)
"""The first codes of: what counts as zero, each bin, what is not finite."""
_STARTS = (*_ENDS, *(code + _CODES // 2 for code in _ENDS))


def _narrowed_codes() -> npt.NDArray[np.int64]:
    """Shape (4096,): the code as of a float32 for each sign and exponent of a float64."""
    exponent = np.clip(np.arange(2048) - 1023 + _BIAS, 0, 254)
    exponent[2047] = 255  # NaN and infinity
    return np.concatenate([exponent, exponent + _CODES // 2])


_NARROWED = _narrowed_codes()


class Binning:
    """Collects the histograms of a step, if it is one that has them."""

    def __init__(self, cap: int) -> None:
        self.on = False
        """Whether the step that is under way has histograms."""
        self._cap = cap
        self._step = self._next = 0
        self._counts: dict[int, npt.NDArray[np.int64]] = {}
        """By row, shape (_CODES,)."""
        self._before: dict[int, Tensor] = {}
        """A sample of each weight from before the step, by the row of its update."""
        self._known: set[int] = set()
        """Optimizers that stepped, by the row of the first update of each."""
        self._stepped: set[int] = set()
        """Those of this step."""
        self._owed: dict[int, int] = {}
        """Optimizers that had no part in the last step with histograms, and how many full steps are tried for each."""

    def begin(self, step: int) -> bool:
        """Begin a step that is read in full. Returns whether it has histograms."""
        self.on = step >= self._next or bool(self._owed)
        self._step = step
        self._stepped = set()
        self._forget()
        return self.on

    def until(self, step: int) -> int:
        """Return the first step from ``step`` on that has histograms, as far as is known."""
        return step if self._owed else max(step, self._next)

    def add(self, row: int, x: Tensor) -> None:
        """Count the elements of a tensor that can be read, or of a sample of it, for a site."""
        if not operation.transforming():
            counts = _counted(x, self._cap)
            known = self._counts.get(row)
            self._counts[row] = counts if known is None else known + counts

    def reset(self, rows: Iterable[int]) -> None:
        """Forget what was counted for some sites."""
        for row in rows:
            self._counts.pop(row, None)

    def weights(self, watched: Iterable[Watched]) -> None:
        """Count weights before a step, and keep a sample of each until after it."""
        if not self.on:
            return
        for w in watched:
            held = _here(w.ref) if w.param is not None and w.update is not None else None
            if held is not None and w.param is not None and w.update is not None:
                self._counts[w.param] = _counted(held, self._cap)
                self._before[w.update] = operation.sample(held.detach(), self._cap).clone()

    def gradients(self, watched: Iterable[Watched], scale: Tensor | float) -> None:
        """Count final gradients, unless they are still to be divided by something."""
        if not self.on or not isinstance(scale, float) or scale != 1.0:
            return
        for w in watched:
            held = _here(w.ref.grad)
            if w.grad is not None and held is not None:
                self._counts[w.grad] = _counted(held, self._cap)

    def updates(self, watched: Sequence[Watched]) -> None:
        """Count what a step has changed."""
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
                self._counts[w.update] = _count(_wide(now) - _wide(before))

    def take(self) -> StepHistograms | None:
        """Return what the step has counted, None where it has no histograms."""
        if not self.on:
            return None
        self.on = False
        self._owed = {own: tries - 1 for own, tries in self._owed.items() if own not in self._stepped and tries > 1}
        if self._step >= self._next:
            share, of = _GROWTH
            self._next = self._step + max(_APART, -(-self._step * share // of))
            self._owed = dict.fromkeys(self._known - self._stepped, _TRIES)
        counted = self._counts
        self._forget()
        if not counted:
            return None
        return StepHistograms.of(self._step, list(counted), _binned(np.stack(list(counted.values()))))

    def _forget(self) -> None:
        self._counts, self._before = {}, {}


def _here(x: Tensor | None) -> Tensor | None:
    """Return the tensor on the CPU whose numbers can be read now for ``x``, None for none."""
    held = operation.shown(x)
    return held if held is not None and not placement.lies(held) and not operation.transforming() else None


def _wide(flat: Tensor) -> Tensor:
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()


def _counted(x: Tensor, cap: int) -> npt.NDArray[np.int64]:
    """Count the values of a tensor on the CPU, or of a sample of about ``cap`` of them, by sign and exponent, shape
    (_CODES,).
    """
    counts = native.exponents(x, cap) if native is not None else None
    return _count(operation.sample(x.detach(), cap)) if counts is None else np.frombuffer(counts, np.int64)


def _count(flat: Tensor) -> npt.NDArray[np.int64]:
    """Count the values of a 1-D tensor by sign and exponent, shape (_CODES,)."""
    values = operation.numbers(_wide(flat))
    if values.dtype == np.float64:
        return np.bincount(_NARROWED[(values.view(np.int64) >> 52) & 4095], minlength=_CODES)
    return np.bincount(values.view(np.uint32) >> 23, minlength=_CODES)


def _binned(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sum counts by code, shape (S, _CODES), up to bins, shape (S, BINS)."""
    summed = np.add.reduceat(counts, _STARTS, axis=1)
    above, below = summed[:, : len(_ENDS)], summed[:, len(_ENDS) :]
    return np.concatenate([below[:, -2:0:-1], above[:, :1] + below[:, :1], above[:, 1:-1]], axis=1)
