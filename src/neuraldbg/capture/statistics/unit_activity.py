"""The units of a layer that were positive lately: a unit is dead by the evidence of many rows, not of one batch.

A row is one sample of a layer's output: an image of a convolution, a token of a sequence. A unit counts as dead once it
was positive in none of the rows read for ``window`` steps or longer, LEAST_ROWS rows of LEAST_READINGS steps at least;
before so much of a layer was read, its dead units are unknown.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from neuraldbg.capture.guest.native import native
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.pending import Awaited
from neuraldbg.capture.statistics.raw_rows import UnitReading
from neuraldbg.nouns import column

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from neuraldbg.capture.statistics.raw_rows import Raw

LEAST_ROWS = 300
"""Rows in which a unit must be silent. By the rule of three (Hanley and Lippman-Hand 1983, "If nothing goes wrong, is
everything all right?") such a unit fires in less than 1% of all rows, with 95% confidence."""
LEAST_READINGS = 3
"""Steps read in which a unit must be silent, however large a batch is."""
CAP = 32_768
"""Elements read of one output. Their maximum takes 3.3 us. That of the 4,096 of `block_cap` takes 1.6 us, but they show
two rows a step of a layer of 2,048 units."""
_COUNT = column("count")
_FILLED = tuple(map(column, ("units", "dead", "dead_rows", "dead_since")))
_NEVER = np.iinfo(np.int64).max


class _Sites(NamedTuple):
    """The sites whose units are watched, in order; arrays of shape (sites,)."""

    rows: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.intp]
    since: npt.NDArray[np.intp]
    """First step in which each was read."""


class Units:
    """Each unit's highest output in a step, and how long ago it was positive."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._lock = threading.Lock()
        self._rows: list[int] = []
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._since: list[int] = []
        self._used = 0
        """Number of units of all sites; the arrays have room for more."""
        self.highest = np.zeros(0, np.float32)
        self._silence = np.zeros((3, 0), np.int64)
        """Of each unit: the last step in which it was positive, and the rows and the readings since."""
        self._views: dict[int, npt.NDArray[np.float32]] = {}
        self._places: dict[int, int] = {}
        """Number of each row among the watched sites."""
        self._read = np.zeros(0, np.int64)
        """Rows read of each watched site in this step."""
        self._total = np.zeros((2, 0), np.int64)
        """Rows and readings of each watched site so far, as of the last reading."""
        self._counts = np.zeros((len(_FILLED), 0))
        """Values of the columns _FILLED of each watched site, as of its last reading; 0 while they are unknown."""
        self._known = np.zeros(0, np.intp)
        """Rows of those sites."""
        self._dead = np.zeros(0, np.bool_)
        """True for each unit that is dead as of the last reading of its site."""
        self._arrays: _Sites | None = None
        self._touched = False
        """True if any units were read in this step."""
        self._there: dict[int, Tensor] = {}
        """Each unit's highest output of this step by row, for rows whose layer is on a device."""

    def add(self, row: int, units: int, step: int) -> None:
        """Add the units of a site."""
        if row in self._places:
            return
        with self._lock:  # steps may be derived in the writer's thread meanwhile
            self._add(row, units, step)

    def _add(self, row: int, units: int, step: int) -> None:
        self._arrays = None
        start, end = self._used, self._used + units
        if end > len(self.highest):
            self._make_room(end)
        self.highest[start:end] = -np.inf
        self._silence[:, start:end] = [[step - 1], [0], [0]]
        if len(self._rows) == len(self._read):
            self._read = np.concatenate([self._read, np.zeros(len(self._read) + 8, np.int64)])
        self._places[row] = len(self._rows)
        self._rows.append(row)
        self._starts.append(start)
        self._sizes.append(units)
        self._since.append(step)
        self._views[row] = self.highest[start:end]
        self._used = end

    def _make_room(self, units: int) -> None:
        """Double the capacity, as a list does: a model of thousands of layers adds its sites one by one."""
        more = np.empty(max(units, 2 * len(self.highest)) - self._used, np.float32)
        self.highest = np.concatenate([self.highest[: self._used], more])
        self._silence = np.concatenate([self._silence[:, : self._used], np.empty((3, len(more)), np.int64)], axis=1)
        self._views = {
            row: self.highest[start : start + size]
            for row, start, size in zip(self._rows, self._starts, self._sizes, strict=True)
        }

    def observe(self, row: int, x: Tensor, axis: int, cap: int = CAP) -> None:
        """Update each unit's highest output of the step. ``axis`` is the unit axis of ``x``, an ``observable``; about
        ``cap`` elements are read.
        """
        view = self._views.get(row)
        if view is None or x.shape[axis] != len(view):
            return
        self._touched = True
        axis %= x.dim()
        samples = math.prod(x.shape[:axis])
        if native is not None and not placement.lies(x) and x.dtype is torch.float32 and native.readable(x):
            shape = _as_units(x, axis)
            if shape is not None:
                outer, inner = shape
                every = min(outer, -(-x.numel() // cap)) or 1
                native.highest(x.data_ptr(), outer, len(view), inner, every, view.ctypes.data)
                self._read[self._places[row]] += min(samples, -(-outer // every))
                return
        x = x.detach()
        if x.numel() > cap and x.shape[0] > 1 and axis != 0:
            x = x[:: -(-x.numel() // cap)]
        self._read[self._places[row]] += math.prod(x.shape[:axis])
        others = [d for d in range(x.dim()) if d != axis]
        highest = x.amax(others) if others else x.clone()
        if placement.lies(x):
            before = self._there.get(row)
            self._there[row] = highest.float() if before is None else torch.fmax(before, highest.float())
            return
        np.fmax(view, operation.numbers(highest.float()), out=view)

    def take(self) -> UnitReading | None:
        """Return what was read of the units in this step, None if none was, and begin the next step."""
        if not self._touched:
            return None
        self._touched = False
        taken = UnitReading(self.highest[: self._used].copy(), self._read[: len(self._rows)].copy())
        self.highest[: self._used] = -np.inf
        self._read[:] = 0
        return taken

    def awaited(self) -> list[Awaited]:
        """Return the highest outputs that are still on devices, to be merged into the step's; call after ``take``."""
        there, self._there = self._there, {}
        return [self._landing(row, highest) for row, highest in there.items()]

    def _landing(self, row: int, there: Tensor) -> Awaited:
        start = self._starts[self._rows.index(row)]

        def land(values: list[npt.NDArray[np.float64]], taken: Raw | None) -> dict[str, float]:
            if taken is not None and taken.units is not None:
                view = taken.units.highest[start : start + len(values[0])]
                np.fmax(view, values[0], out=view, casting="same_kind")
            return {}

        return Awaited((there,), land)

    def derive(self, steps: list[int], taken: list[UnitReading | None], out: npt.NDArray[np.float64]) -> None:
        """Fill the columns of units of the sites read in steps, shape (steps, sites, len(STATS)). A reading of units
        holds until the next one. Steps must come in order.
        """
        filled = 0
        for place, (step, reading) in enumerate(zip(steps, taken, strict=True)):
            if reading is not None:
                self._fill(out[filled:place])
                filled = place
                with self._lock:
                    self._learn(step, reading)
        self._fill(out[filled:])

    def _fill(self, out: npt.NDArray[np.float64]) -> None:
        if len(self._known) and len(out):
            seen = out[:, self._known, _COUNT] > 0
            for filled, values in zip(_FILLED, self._counts, strict=True):
                out[:, self._known, filled] = np.where(seen, values, 0.0)

    def _learn(self, step: int, reading: UnitReading) -> None:
        """Add one reading to the silence of each unit, and count the dead units of the sites that were read."""
        known, watched = len(reading.highest), len(reading.rows)
        sites = self._sites()
        starts, sizes = sites.starts[:watched], sites.sizes[:watched]
        if self._total.shape[1] < watched:
            self._total, self._counts = _wider(self._total, watched), _wider(self._counts, watched)
            self._known = sites.rows[:watched]
        read = reading.rows > 0
        self._total[:, :watched] += reading.rows, read
        fired, rows, readings = self._silence[:, :known]
        rows += np.repeat(reading.rows, sizes)
        readings += np.repeat(read, sizes)
        alive = reading.highest > 0
        fired[alive], rows[alive], readings[alive] = step, 0, 0

        dead = (readings >= LEAST_READINGS) & (rows >= LEAST_ROWS) & (step - fired >= self.window)
        counts = np.zeros((len(_FILLED), watched))
        counts[0] = sizes
        counts[1] = np.add.reduceat(dead, starts, dtype=np.int64)
        counts[2] = np.minimum.reduceat(np.where(dead, rows, _NEVER), starts)
        counts[3] = np.maximum.reduceat(np.where(dead, fired, -1), starts) + 1
        counts[2:, counts[1] == 0] = 0.0
        total = self._total[:, :watched]
        enough = (
            (total[0] >= LEAST_ROWS) & (total[1] >= LEAST_READINGS) & (step - sites.since[:watched] >= self.window - 1)
        )
        news = np.flatnonzero(read & enough)
        self._counts[:, news] = counts[:, news]
        if len(self._dead) < known:
            self._dead = np.concatenate([self._dead, np.zeros(known - len(self._dead), np.bool_)])
        np.copyto(self._dead[:known], dead, where=np.repeat(read & enough, sizes))

    def dead(self) -> list[tuple[int, npt.NDArray[np.bool_]]]:
        """Return the row of each site with dead units, and which of its units are, as of its last reading; in the order
        in which the sites were added.
        """
        with self._lock:  # steps may be derived in the writer's thread meanwhile
            if not self._dead.any():
                return []
            places = zip(self._rows, self._starts, self._sizes, strict=True)
            parts = [(row, self._dead[start : start + size]) for row, start, size in places]
            return [(row, dead.copy()) for row, dead in parts if dead.any()]

    def _sites(self) -> _Sites:
        if self._arrays is None:
            lists = (self._rows, self._starts, self._sizes, self._since)
            self._arrays = _Sites(*(np.array(each, np.intp) for each in lists))
        return self._arrays


def _wider(values: npt.NDArray[Any], columns: int) -> npt.NDArray[Any]:
    """Return an array with columns of zeros added at its end."""
    return np.concatenate([values, np.zeros((len(values), columns - values.shape[1]), values.dtype)], axis=1)


def _as_units(x: Tensor, axis: int) -> tuple[int, int] | None:
    """Return (outer, inner) if the memory of ``x`` is that of a tensor (outer, units, inner), else None."""
    if x.is_neg():
        return None
    if x.is_contiguous():
        return math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if axis == 1 and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x.numel() // x.shape[1], 1
    return None
