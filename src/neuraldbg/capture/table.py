"""Rows of numbers, allocated once: raw accumulators in, one ``STATS`` table a step out.

The raw buffer keeps its address for the whole session, so that a compiled graph can write into it. Tensors on another
device write into a table of their own there; the step boundary brings each over with one copy.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from neuraldbg.capture import op
from neuraldbg.capture.device import DeviceTable
from neuraldbg.capture.kernel import native
from neuraldbg.nouns import STATS, Site, column

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor


class Table:
    """Accumulates statistics by site over one step."""

    def __init__(self, rows: int, cap: int, window: int) -> None:
        self.cap = cap
        self.sites: list[Site] = []
        self._rows_of: dict[tuple[str, str, int, str], int] = {}
        self.full = False
        """Whether a site was refused because all rows are taken."""
        self._limit = rows
        self.raw = torch.zeros((rows, op.WIDTH), dtype=torch.float64, device="cpu")
        """Shape (rows, op.WIDTH), float64, on the CPU."""
        self.handle = op.handle_of(self.raw)
        self.rows = op.rows_of(self.raw)
        self._numpy = self.rows.values
        self._elsewhere: dict[torch.device, DeviceTable] = {}
        self._numpy[:] = op.BLANK
        self.units = Units(window)
        self.clear()

    def add(self, site: Site) -> int | None:
        """Give a site its row, the same one for the same site; None when all rows are taken."""
        key = (site.kind, site.module, site.call, site.name)
        if key in self._rows_of:
            return self._rows_of[key]
        if len(self.sites) >= self._limit:
            self.full = True
            return None
        self.sites.append(site)
        self._rows_of[key] = len(self.sites) - 1
        return len(self.sites) - 1

    def set_dtype(self, row: int, dtype: torch.dtype) -> None:
        """Note the dtype of a site when it is first seen."""
        site = self.sites[row]
        if not site.dtype:
            self.sites[row] = Site(site.kind, site.module, site.call, site.name, str(dtype).removeprefix("torch."))

    def observe(
        self, x: Tensor, row: int, bound: float = 0.0, centre: float = 0.0, total: int = 0, *, whole: bool = False
    ) -> None:
        """Add a tensor's statistics to a row. ``x`` must be ``op.observable``; ``total`` if it is a sample of more,
        ``whole`` to read all of it.
        """
        if not self.sites[row].dtype:
            self.set_dtype(row, x.dtype)
        x = x.detach()
        if not x.is_cpu:
            self.on(x.device).observe(x, row, 0 if whole else self.cap, bound, centre)
            return
        op.observe_cpu(x, self.rows, row, 0 if whole else self.cap, bound, centre)
        if total:
            self._numpy[row, op.TOTAL] += total - x.numel()

    def on(self, device: torch.device) -> DeviceTable:
        """Return the accumulator on another device."""
        table = self._elsewhere.get(device)
        if table is None:
            table = self._elsewhere[device] = DeviceTable(device, len(self.raw))
        return table

    def gather(self) -> None:
        """Make all rows readable: bring over what other devices hold, one copy each."""
        for table in self._elsewhere.values():
            table.fetch(len(self.sites))
            there = table.take(wait=True)
            if there is None:
                continue
            here = self._numpy[: len(there)]
            here[:, op.MIN] = np.fmin(here[:, op.MIN], there[:, op.MIN])
            here[:, op.MAX] = np.fmax(here[:, op.MAX], there[:, op.MAX])
            for col in op.SUMMED:
                here[:, col] += there[:, col]

    def raw_row(self, row: int) -> npt.NDArray[np.float64]:
        """Return a row's accumulators, shape (op.WIDTH,)."""
        found: npt.NDArray[np.float64] = self._numpy[row]
        return found

    def reset(self, rows: list[int]) -> None:
        """Forget what some rows have accumulated in this step."""
        self._numpy[rows] = 0.0
        self._numpy[rows, op.MIN], self._numpy[rows, op.MAX] = np.inf, -np.inf

    def scale(self, rows: list[int], factor: float) -> None:
        """Multiply what was read into some rows, as if the tensors had been multiplied. Counts stay."""
        self._numpy[np.ix_(rows, (op.SUM, op.MIN, op.MAX))] *= factor
        self._numpy[rows, op.SQUARES] *= factor * factor

    def set_norm(self, row: int, norm: float) -> None:
        """Say what the L2 norm of the whole tensor is of which a row holds a sample."""
        raw = self._numpy[row]
        if raw[op.COUNT] and math.isfinite(norm):
            raw[op.SQUARES] = norm**2 * raw[op.COUNT] / raw[op.TOTAL]

    def rest(self, *, resting: bool) -> None:
        """Take nothing from compiled graphs in the steps to come, or begin anew."""
        op.rest(self.raw, self.handle, resting=resting)
        if not resting:
            self.clear()

    def clear(self) -> None:
        """Start a new step."""
        used = self._numpy[: len(self.sites)]
        used[:] = 0.0
        used[:, op.MIN] = np.inf
        used[:, op.MAX] = -np.inf

    def take(self) -> Raw:
        """Return a copy of what the step gathered, to be derived later, and start the next step."""
        taken = Raw(self._numpy[: len(self.sites)].copy(), self.units.take())
        self.clear()
        return taken

    def derive(self, step: int, taken: Raw | None = None) -> npt.NDArray[np.float64]:
        """Return a step's table, shape (sites, len(STATS)); sites not seen have count 0 and NaN moments."""
        raw = self._numpy[: len(self.sites)] if taken is None else taken.raw
        out = np.full((len(raw), len(STATS)), np.nan)
        finite = raw[:, op.COUNT] - raw[:, op.NONFINITE]
        some = finite > 0
        number = np.where(some, finite, 1.0)
        mean = raw[:, op.SUM] / number
        squares = raw[:, op.SQUARES] / number
        out[:, column("total")] = raw[:, op.TOTAL]
        out[:, column("count")] = raw[:, op.COUNT]
        out[:, column("nonfinite")] = raw[:, op.NONFINITE]
        with np.errstate(over="ignore", invalid="ignore"):
            moments = {
                "mean": mean,
                "std": np.sqrt(np.maximum(squares - mean * mean, 0.0)),
                "rms": np.sqrt(squares),
                "min": raw[:, op.MIN],
                "max": raw[:, op.MAX],
            }
        for name, values in moments.items():
            out[some, column(name)] = values[some]
        out[:, column("zeros")] = raw[:, op.ZEROS]
        out[:, column("saturated")] = raw[:, op.SATURATED]
        out[:, column("under")] = raw[:, op.UNDER]
        out[:, column("over")] = raw[:, op.OVER]
        out[:, column("units")] = 0.0
        out[:, column("dead")] = 0.0
        if taken is not None:
            self.units.derive(step, taken.highest, out)
        return out


class Units:
    """Which units of a layer have been positive lately: dead is a matter of many batches, not of one."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._lock = threading.Lock()
        self._rows: list[int] = []
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._highest = np.zeros(0, np.float32)
        self._fired = np.zeros(0, np.int64)
        self._views: dict[int, npt.NDArray[np.float32]] = {}
        self._since: dict[int, int] = {}
        self._latest: dict[int, tuple[int, int]] = {}

    def add(self, row: int, units: int, step: int) -> None:
        """Begin to watch the units of a site."""
        if row in self._since:
            return
        with self._lock:  # steps may be derived in the writer's thread meanwhile
            self._add(row, units, step)

    def _add(self, row: int, units: int, step: int) -> None:
        self._starts.append(len(self._highest))
        self._sizes.append(units)
        self._rows.append(row)
        self._since[row] = step
        self._highest = np.concatenate([self._highest, np.full(units, -np.inf, np.float32)])
        self._fired = np.concatenate([self._fired, np.full(units, step - 1, np.int64)])
        self._views = {
            r: self._highest[start : start + size]
            for r, start, size in zip(self._rows, self._starts, self._sizes, strict=True)
        }

    def observe(self, row: int, x: Tensor, axis: int, cap: int) -> None:
        """Keep each unit's highest output of the step. ``axis`` is the unit axis of ``x``."""
        view = self._views.get(row)
        if view is None or x.shape[axis] != len(view):
            return
        axis %= x.dim()
        if native is not None and x.is_cpu and x.dtype is torch.float32:
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
        highest = x.amax(others) if others else x
        np.fmax(view, highest.float().cpu().numpy(), out=view)

    def take(self) -> npt.NDArray[np.float32]:
        """Return each unit's highest output of the step, and start the next."""
        highest = self._highest.copy()
        self._highest[:] = -np.inf
        return highest

    def derive(self, step: int, highest: npt.NDArray[np.float32], out: npt.NDArray[np.float64]) -> None:
        """Fill the columns ``units`` and ``dead`` of the sites seen in a step. Steps must come in order."""
        if len(highest):
            with self._lock:
                self._derive(step, highest, out)

    def _derive(self, step: int, highest: npt.NDArray[np.float32], out: npt.NDArray[np.float64]) -> None:
        known = len(highest)
        sites = int(np.searchsorted(self._starts, known))
        rows, starts = np.array(self._rows[:sites]), np.array(self._starts[:sites])
        self._fired[:known][highest > 0] = step
        needed = np.minimum(self.window, step - np.array([self._since[row] for row in rows]) + 1)
        sizes = np.array(self._sizes[:sites])
        silent = step - self._fired[:known] >= np.repeat(needed, sizes)
        seen = np.isfinite(np.maximum.reduceat(highest, starts))
        dead = np.add.reduceat(silent, starts, dtype=np.int64)
        for i in np.flatnonzero(seen):
            self._latest[int(rows[i])] = (int(sizes[i]), int(dead[i]))
        for row, (units, silent_units) in self._latest.items():  # units are not read at every step
            if out[row, column("count")] > 0:
                out[row, column("units")], out[row, column("dead")] = units, silent_units


def _as_units(x: Tensor, axis: int) -> tuple[int, int] | None:
    """Return (outer, inner) if the memory of ``x`` is that of a tensor (outer, units, inner), else None."""
    if x.is_contiguous():
        return math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if axis == 1 and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x.numel() // x.shape[1], 1
    return None


class Raw(NamedTuple):
    """One step's accumulators, copied."""

    raw: npt.NDArray[np.float64]
    """Shape (sites, op.WIDTH)."""
    highest: npt.NDArray[np.float32]
    """Shape (units of all watched sites,): each unit's highest output, -inf where its site was not seen."""
