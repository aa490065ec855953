"""The units of a layer that were positive lately: a unit is dead by the evidence of many batches, not of one."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from neuraldbg.capture.guest.native import native
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.pending import Awaited
from neuraldbg.nouns import column

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from neuraldbg.capture.statistics.raw_rows import Raw

_COUNT, _UNITS, _DEAD = map(column, ("count", "units", "dead"))


class _Sites(NamedTuple):
    """The sites whose units are watched, in order; arrays of shape (sites,)."""

    rows: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.intp]
    since: npt.NDArray[np.int64]


class Units:
    """Each unit's highest output in a step, and the last step in which it was positive."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._lock = threading.Lock()
        self._rows: list[int] = []
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._used = 0
        """Number of units of all sites; the arrays have room for more."""
        self.highest = np.zeros(0, np.float32)
        self._fired = np.zeros(0, np.int64)
        self._views: dict[int, npt.NDArray[np.float32]] = {}
        self._since: dict[int, int] = {}
        self._latest: dict[int, tuple[int, int]] = {}
        """(units, dead units) of each row, as of the last reading."""
        self._known, self._counts = np.zeros(0, np.intp), np.zeros((2, 0))
        """The same as arrays: rows, and counts of shape (2, rows)."""
        self._arrays: _Sites | None = None
        self._touched = False
        """True if any units were read in this step."""
        self._there: dict[int, Tensor] = {}
        """Each unit's highest output of this step by row, for rows whose layer is on a device."""

    def add(self, row: int, units: int, step: int) -> None:
        """Add the units of a site."""
        if row in self._since:
            return
        with self._lock:  # steps may be derived in the writer's thread meanwhile
            self._add(row, units, step)

    def _add(self, row: int, units: int, step: int) -> None:
        self._arrays = None
        start, end = self._used, self._used + units
        if end > len(self.highest):
            self._make_room(end)
        self.highest[start:end], self._fired[start:end] = -np.inf, step - 1
        self._rows.append(row)
        self._starts.append(start)
        self._sizes.append(units)
        self._since[row] = step
        self._views[row] = self.highest[start:end]
        self._used = end

    def _make_room(self, units: int) -> None:
        """Double the capacity, as a list does: a model of thousands of layers adds its sites one by one."""
        more = np.empty(max(units, 2 * len(self.highest)) - self._used, np.float32)
        self.highest = np.concatenate([self.highest[: self._used], more])
        self._fired = np.concatenate([self._fired[: self._used], np.empty(len(more), np.int64)])
        self._views = {
            row: self.highest[start : start + size]
            for row, start, size in zip(self._rows, self._starts, self._sizes, strict=True)
        }

    def observe(self, row: int, x: Tensor, axis: int, cap: int) -> None:
        """Update each unit's highest output of the step. ``axis`` is the unit axis of ``x``, an ``observable``."""
        view = self._views.get(row)
        if view is None or x.shape[axis] != len(view):
            return
        self._touched = True
        axis %= x.dim()
        if native is not None and not placement.lies(x) and x.dtype is torch.float32 and native.readable(x):
            shape = _as_units(x, axis)
            if shape is not None:
                outer, inner = shape
                every = min(outer, -(-x.numel() // cap))
                native.highest(x.data_ptr(), outer, len(view), inner, every, view.ctypes.data)
                return
        x = x.detach()
        if x.numel() > cap and x.shape[0] > 1 and axis != 0:
            x = x[:: -(-x.numel() // cap)]
        others = [d for d in range(x.dim()) if d != axis]
        highest = x.amax(others) if others else x.clone()
        if placement.lies(x):
            before = self._there.get(row)
            self._there[row] = highest.float() if before is None else torch.fmax(before, highest.float())
            return
        np.fmax(view, operation.numbers(highest.float()), out=view)

    def take(self) -> npt.NDArray[np.float32] | None:
        """Return each unit's highest output of the step, None if none was read, and begin the next step."""
        if not self._touched:
            return None
        self._touched = False
        highest = self.highest[: self._used].copy()
        self.highest[: self._used] = -np.inf
        return highest

    def awaited(self) -> list[Awaited]:
        """Return the highest outputs that are still on devices, to be merged into the step's; call after ``take``."""
        there, self._there = self._there, {}
        return [self._landing(row, highest) for row, highest in there.items()]

    def _landing(self, row: int, there: Tensor) -> Awaited:
        start = self._starts[self._rows.index(row)]

        def land(values: list[npt.NDArray[np.float64]], taken: Raw | None) -> dict[str, float]:
            if taken is not None and taken.highest is not None:
                view = taken.highest[start : start + len(values[0])]
                np.fmax(view, values[0], out=view, casting="same_kind")
            return {}

        return Awaited((there,), land)

    def derive(
        self, steps: list[int], highest: list[npt.NDArray[np.float32] | None], out: npt.NDArray[np.float64]
    ) -> None:
        """Fill the columns ``units`` and ``dead`` of the sites read in steps, shape (steps, sites, len(STATS)). A
        reading of units holds until the next one. Steps must come in order.
        """
        filled = 0
        for place, (step, read) in enumerate(zip(steps, highest, strict=True)):
            if read is not None:
                self._fill(out[filled:place])
                filled = place
                with self._lock:
                    self._learn(step, read)
        self._fill(out[filled:])

    def _fill(self, out: npt.NDArray[np.float64]) -> None:
        if len(self._known) and len(out):
            rows = self._known
            seen = out[:, rows, _COUNT] > 0
            out[:, rows, _UNITS] = np.where(seen, self._counts[0], 0.0)
            out[:, rows, _DEAD] = np.where(seen, self._counts[1], 0.0)

    def _learn(self, step: int, highest: npt.NDArray[np.float32]) -> None:
        known = len(highest)
        sites = self._sites()
        if sites.starts[-1] >= known:  # some sites were added since
            sites = _Sites(*(each[: int(np.searchsorted(sites.starts, known))] for each in sites))
        fired = self._fired[:known]
        fired[highest > 0] = step
        needed = np.minimum(self.window, step - sites.since + 1)
        steady = int(needed.min()) == self.window
        silent = step - fired >= (self.window if steady else np.repeat(needed, sites.sizes))
        seen = np.isfinite(np.maximum.reduceat(highest, sites.starts))
        dead = np.add.reduceat(silent, sites.starts, dtype=np.int64)
        for i in np.flatnonzero(seen):
            self._latest[int(sites.rows[i])] = (int(sites.sizes[i]), int(dead[i]))
        self._counts = np.array(list(self._latest.values()), np.float64).T
        self._known = np.array(list(self._latest), np.intp)

    def _sites(self) -> _Sites:
        if self._arrays is None:
            rows, starts, sizes = (np.array(each, np.intp) for each in (self._rows, self._starts, self._sizes))
            self._arrays = _Sites(rows, starts, sizes, np.array([self._since[row] for row in self._rows]))
        return self._arrays


def _as_units(x: Tensor, axis: int) -> tuple[int, int] | None:
    """Return (outer, inner) if the memory of ``x`` is that of a tensor (outer, units, inner), else None."""
    if x.is_neg():
        return None
    if x.is_contiguous():
        return math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if axis == 1 and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x.numel() // x.shape[1], 1
    return None
