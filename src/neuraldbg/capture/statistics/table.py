"""The rows of a session, allocated once: raw accumulators in, one ``STATS`` table a step out.

The raw buffer keeps its address for the whole session, so that a compiled graph can write into it. Tensors on another
device are accumulated in a table on that device, which is copied over at the end of a step without a wait:
``Table.send``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.guest.tensor_memory import Unread
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.pending import Awaited, Late, sent
from neuraldbg.capture.statistics.device.table import DeviceTable
from neuraldbg.capture.statistics.histograms import Binning
from neuraldbg.capture.statistics.raw_rows import Raw
from neuraldbg.capture.statistics.unit_activity import Units
from neuraldbg.nouns import Site
from neuraldbg.nouns.accumulators import derived

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from torch import Tensor


class Table:
    """Accumulates statistics by site over one step, here and on other devices."""

    def __init__(self, rows: int, cap: int, window: int) -> None:
        self.cap = cap
        self.sites: list[Site] = []
        self._rows_of: dict[tuple[str, str, int, str], int] = {}
        self.full = False
        """True once a site was refused because all rows are taken."""
        self.version = 0
        """Counter that grows when a site or its dtype is added."""
        self.strangers: dict[int, Any] = {}
        """Threads whose training is not followed, by thread number: hooks read nothing that they run."""
        self.grows: Callable[[], None] = lambda: None
        """Called before a new site is added."""
        self._limit = rows
        self.raw = torch.zeros((rows, operation.WIDTH), dtype=torch.float64, device="cpu")
        """Accumulators on the CPU, shape (rows, operation.WIDTH), float64."""
        self.resting = False
        """True while compiled graphs on other devices are to leave their tables alone."""
        self.rows = operation.rows_of(self.raw)
        self._numpy = self.rows.values
        self.device_tables: dict[torch.device, DeviceTable] = {}
        self._wanted: set[torch.device] = set()
        """Devices of compiled graphs that have no table yet."""
        self._scalings: dict[tuple[int, ...], Tensor | float] = {}
        """Divisors of rows of this step that are applied later: rows or divisor are on a device."""
        self._gathered = False
        """True if rows of this step were copied over already."""
        self._numpy[:] = operation.BLANK
        self._blank = self._numpy[:0].copy()
        """As many blank rows as there are sites."""
        self.unread = Unread()
        """The tensors that could not be read, for the coverage report."""
        self.units = Units(window)
        self.binning = Binning(cap)
        self.clear()

    def add(self, site: Site) -> int | None:
        """Return the row of a site, adding the site if it is new; None when all rows are taken."""
        key = (site.kind, site.module, site.call, site.name)
        if key in self._rows_of:
            return self._rows_of[key]
        if len(self.sites) >= self._limit:
            self.full = True
            return None
        self.version += 1
        self.grows()
        self.sites.append(site)
        self._rows_of[key] = len(self.sites) - 1
        return len(self.sites) - 1

    def set_dtype(self, row: int, dtype: torch.dtype) -> None:
        """Record the dtype of a site when it is first read."""
        site = self.sites[row]
        if not site.dtype:
            self.version += 1
            self.sites[row] = Site(site.kind, site.module, site.call, site.name, str(dtype).removeprefix("torch."))

    def observe(
        self, x: Tensor, row: int, bound: float = 0.0, centre: float = 0.0, total: int = 0, *, whole: bool = False
    ) -> None:
        """Add a tensor's statistics to a row. ``x`` must be ``operation.observable``; ``total`` is the number of
        elements of the tensor that ``x`` is a sample of, 0 if ``x`` is no sample; ``whole`` reads all of ``x``.
        """
        if not self.sites[row].dtype:
            self.set_dtype(row, x.dtype)
        x = x.detach()
        if placement.lies(x):
            self.on(x.device).observe(x, row, 0 if whole else self.cap, bound, centre)
            return
        operation.observe_cpu(x, self.rows, row, 0 if whole else self.cap, bound, centre)
        if self.binning.on:
            self.binning.add(row, x)
        if total:
            self._numpy[row, operation.TOTAL] += total - x.numel()

    def on(self, device: torch.device) -> DeviceTable:
        """Return the table of another device, allocating it if there is none."""
        table = self.device_tables.get(device)
        if table is None:
            table = self.device_tables[device] = DeviceTable(device, len(self.raw))
        return table

    def for_graph(self, device: torch.device) -> DeviceTable | None:
        """Return the table of another device for a compiled graph, None if there is none yet. It is allocated when the
        step ends: memory allocated while a graph runs may belong to a CUDA graph, and be used again.
        """
        table = self.device_tables.get(device)
        if table is None:
            self._wanted.add(device)
        return table

    @property
    def here(self) -> bool:
        """True if no part of this step is on another device."""
        return not (self.device_tables or self._wanted or self._scalings)

    def blank(self) -> npt.NDArray[np.float64]:
        """Return as many blank rows as there are sites, the same array until there are more."""
        if len(self._blank) != len(self.sites):
            self._blank = np.tile(operation.BLANK, (len(self.sites), 1))
        return self._blank

    def gather(self) -> None:
        """Copy all rows of other devices over now, waiting for them."""
        late = self._sent(len(self.sites), [])
        if late is not None:
            late.land(Raw(self._numpy, None))
            self._gathered = True

    def send(self, taken: Raw, scalars: Sequence[Awaited]) -> Late | None:
        """Start the copies of a step's values on other devices: its rows (``taken`` are those on the CPU), its units
        and the pending ``scalars``. Return None if there are none.
        """
        return self._sent(len(taken.raw), [*self.units.awaited(), *scalars])

    def _sent(self, rows: int, others: Sequence[Awaited]) -> Late | None:
        if not (self.device_tables or self._scalings or others or self._wanted):
            return None
        awaited = [Awaited((table.table[:rows],), _merge) for table in self.device_tables.values()]
        awaited += [_division(list(some), by) for some, by in self._scalings.items()]
        late = sent([*awaited, *others])
        self._scalings.clear()
        for table in self.device_tables.values():
            table.clear(rows)
        while self._wanted:
            self.on(self._wanted.pop())
        return late

    def reset(self, rows: list[int]) -> None:
        """Clear some rows in this step."""
        self._numpy[rows] = operation.BLANK
        self.binning.reset(rows)
        for table in self.device_tables.values():
            table.reset(rows)

    def replace(self, rows: list[int]) -> None:
        """Clear the copied part of rows of a device that are read again in this step."""
        if self._gathered:
            self._numpy[rows] = operation.BLANK

    def divide(self, rows: list[int], by: float) -> None:
        """Divide the values of some rows, as if the tensors had been divided. Counts stay."""
        _divide(self._numpy, rows, by)
        self.binning.reset(rows)

    def divide_later(self, rows: list[int], by: Tensor | float) -> None:
        """Divide rows once they, or the divisor, have arrived from another device."""
        self._scalings[tuple(rows)] = by
        self.binning.reset(rows)

    def set_norm(self, row: int, norm: float) -> None:
        """Set the L2 norm of the whole tensor of which a row holds a sample."""
        raw = self._numpy[row]
        if raw[operation.COUNT] and math.isfinite(norm):
            raw[operation.SQUARES] = norm**2 * raw[operation.COUNT] / raw[operation.TOTAL]

    def begin(self) -> None:
        """Begin a step, discarding all that was accumulated, here and on other devices."""
        self.clear()
        self._scalings.clear()
        for table in self.device_tables.values():
            table.clear(len(self.sites))

    def clear(self) -> None:
        """Clear the rows on the CPU; those of other devices are cleared when they are sent."""
        self._numpy[: len(self.sites)] = self.blank()  # a full-size array: broadcasting one row takes longer
        self._gathered = False

    def take(self) -> Raw:
        """Return a copy of the step's accumulators, to be derived later, and begin the next step."""
        taken = Raw(self._numpy[: len(self.sites)].copy(), self.units.take(), self.binning.take())
        self.clear()
        return taken

    def derive(self, step: int, taken: Raw | None = None) -> npt.NDArray[np.float64]:
        """Return a step's table, shape (sites, len(STATS)); sites that were not read have count 0 and NaN moments."""
        if taken is None:
            return derived(self._numpy[: len(self.sites)])
        table: npt.NDArray[np.float64] = self.derive_all([step], [taken])[0]
        return table

    def derive_all(self, steps: list[int], taken: list[Raw]) -> npt.NDArray[np.float64]:
        """Return the tables of steps with the same sites, shape (steps, sites, len(STATS)). Steps come in order."""
        out = derived(np.stack([one.raw for one in taken]))
        self.units.derive(steps, [one.units for one in taken], out)
        return out


def _merge(values: list[npt.NDArray[np.float64]], taken: Raw | None) -> dict[str, float]:
    """Add the rows of a device to those of the step."""
    (there,) = values
    if taken is not None:
        here = taken.raw[: len(there)]
        here[:, operation.MIN] = np.fmin(here[:, operation.MIN], there[:, operation.MIN])
        here[:, operation.MAX] = np.fmax(here[:, operation.MAX], there[:, operation.MAX])
        for col in operation.SUMMED:
            here[:, col] += there[:, col]
    return {}


def _divide(raw: npt.NDArray[np.float64], rows: list[int], by: float) -> None:
    raw[np.ix_(rows, (operation.SUM, operation.MIN, operation.MAX))] /= by
    raw[rows, operation.SQUARES] /= by * by


def _division(rows: list[int], by: Tensor | float) -> Awaited:
    """Return the pending division of rows by a number that may be on a device."""

    def land(values: list[npt.NDArray[np.float64]], taken: Raw | None) -> dict[str, float]:
        if taken is not None:
            _divide(taken.raw, rows, by if isinstance(by, float) else float(values[0]))
        return {}

    return Awaited(() if isinstance(by, float) else (by,), land)
