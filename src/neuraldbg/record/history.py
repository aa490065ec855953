"""A ``History`` whose tables stay packed as in the run file; only the columns or rows that are read are unpacked.

A run of a million steps holds tens of megabytes of tables, and most readings need one site of them, or one step.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.nouns import STATS, History, Slab, column
from neuraldbg.nouns.run import empty_history
from neuraldbg.record.row_block import UNSEEN, padded
from neuraldbg.record.validation import FARTHEST, LATEST_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from neuraldbg.nouns.run import Reduce
    from neuraldbg.record import codec
    from neuraldbg.record.row_block import Block

_NAMES = {"min": "low", "mean": "mean", "max": "high"}
_OFTEN = 16
"""Readings of one statistic after which it is unpacked for all sites: a diagnosis of thousands of sites reads ten
thousand times."""
_MOST, _LARGEST = 64 * 2**20, 8 * 2**20
"""Bytes of all such unpacked statistics at most, and of one: if only a few fitted, they would displace each other."""
_STREAMS = 1 << 20
"""Optimizers of a run at most."""
_ROWS = ("ordinal", "folded", "steps", "width", "time", "stream", "applied")


class StoredHistory(History):
    """A History whose ``mean``, ``low`` and ``high`` are unpacked when they are first read as a whole.

    It has the same fields. ``dataclasses.replace`` makes an object with plain arrays of it, as of any History.
    """

    _packed: tuple[tuple[npt.NDArray[np.intp], codec.Blob], ...] | None = None
    """Blocks of tables, each with the indices of its rows of time. None if the object holds plain arrays."""
    _sites = 0
    """Number of sites."""

    @classmethod
    def of(
        cls,
        plain: dict[str, npt.NDArray[Any]],
        scalars: dict[str, npt.NDArray[np.float64]],
        packed: Sequence[tuple[npt.NDArray[np.intp], codec.Blob]],
        sites: int,
    ) -> StoredHistory:
        """Build a history from the columns of its rows and from packed tables. Raises ValueError for a time that no
        date can have.
        """
        if not (np.abs(plain["time"]) <= LATEST_S).all():  # false for NaN, too
            raise ValueError("the time of a step is no number of seconds")
        made = object.__new__(cls)
        fields = {name: plain[name] for name in ("steps", "width", "time", "stream", "applied")}
        made.__dict__.update(fields, scalars=scalars, _packed=tuple(packed), _sites=sites, _asked={}, _planes={})
        return made

    @cached_property
    def mean(self) -> npt.NDArray[np.float32]:
        return self._unpacked("mean")

    @cached_property
    def low(self) -> npt.NDArray[np.float32]:
        return self._unpacked("low") if self._binned else self.mean

    @cached_property
    def high(self) -> npt.NDArray[np.float32]:
        return self._unpacked("high") if self._binned else self.mean

    @property
    def sites(self) -> int:
        return super().sites if self._packed is None else self._sites

    @cached_property
    def read(self) -> npt.NDArray[np.bool_]:
        if self._packed is None:
            return super().read
        found = np.zeros(len(self), bool)
        for at, _ in self._packed:
            found[at] = True
        return found

    def row(self, at: int, reduce: Reduce = "mean") -> npt.NDArray[np.float32]:
        """Return the table of one row of time, shape (sites, len(STATS))."""
        if self._packed is None:
            return super().row(at, reduce)
        laid = np.tile(UNSEEN, (self._sites, 1))
        for rows, blob in self._packed:
            hit = np.flatnonzero(rows == at % len(self))
            if len(hit):
                laid[: blob.sites] = blob.table(_NAMES[reduce])[hit[0]]
        return laid

    def slabs(self) -> Iterator[Slab]:
        """Yield all tables that were read, a block at a time and in the order of time."""
        if self._packed is None:
            yield from super().slabs()
            return
        together: list[tuple[npt.NDArray[np.intp], codec.Blob]] = []
        for at, blob in sorted(self._packed, key=lambda item: int(item[0][0])):
            if together and max(int(rows[-1]) for rows, _ in together) < at[0]:
                yield self._slab(together)
                together = []
            together.append((at, blob))
        if together:
            yield self._slab(together)

    def _slab(self, blocks: Sequence[tuple[npt.NDArray[np.intp], codec.Blob]]) -> Slab:
        """Unpack blocks whose rows of time interleave: one block, except where optimizers take turns in bins."""
        at = np.concatenate([rows for rows, _ in blocks])
        order = np.argsort(at)
        tables = []
        for name in ("mean", "low", "high") if any(blob.binned for _, blob in blocks) else ("mean",):
            laid = np.concatenate([padded(blob.table(name), self._sites) for _, blob in blocks])
            tables.append(laid[order])
        return Slab(at[order], *(tables if len(tables) == 3 else tables * 3))

    def stat(
        self, rows: int | list[int] | tuple[int, ...], name: str, reduce: Reduce = "mean"
    ) -> npt.NDArray[np.float64]:
        """Return one statistic of one site, shape (T,), or of several, shape (T, len(rows))."""
        if self._packed is None or self._laid(_NAMES[reduce]) in self.__dict__:
            return super().stat(rows, name, reduce)
        sites = np.atleast_1d(np.asarray(rows, np.int64))
        if len(sites) and not -self._sites <= sites.min() <= sites.max() < self._sites:
            raise IndexError(f"the record has {self._sites} sites")
        sites %= max(1, self._sites)
        k = column(name)
        laid = np.full((len(self), len(sites)), UNSEEN[k], np.float64)
        plane = self._plane(self._laid(_NAMES[reduce]), k)
        if plane is not None:
            laid[self._tabled] = plane[:, sites]
        else:
            for at, blob in self._packed:
                known = np.flatnonzero(sites < blob.sites)
                laid[at[:, None], known] = blob.columns(_NAMES[reduce], sites[known] * len(STATS) + k)
        return laid[:, 0] if isinstance(rows, int) else laid

    def _laid(self, name: str) -> str:
        """Return the name of the array to read for ``name``: without bins ``low`` and ``high`` equal ``mean``."""
        return name if self._binned else "mean"

    def _plane(self, name: str, k: int) -> npt.NDArray[np.float32] | None:
        """Return one statistic of all sites, shape (rows with tables, sites); None if it was read seldom, or is too
        large to keep.
        """
        planes: dict[tuple[str, int], npt.NDArray[np.float32]] = self.__dict__["_planes"]
        asked: dict[tuple[str, int], int] = self.__dict__["_asked"]
        known = planes.get((name, k))
        if known is not None:
            return known
        asked[name, k] = asked.get((name, k), 0) + 1
        size = len(self._tabled) * self._sites * 4
        if asked[name, k] <= _OFTEN or not 0 < size <= _LARGEST:
            return None
        for oldest in list(planes)[: max(0, len(planes) + 1 - _MOST // size)]:
            planes.pop(oldest, None)  # the dashboard's page and its diagnosis read from two threads
        plane = np.full((len(self._tabled), self._sites), UNSEEN[k], np.float32)
        start = 0
        for at, blob in self._packed or ():
            wanted = np.arange(blob.sites) * len(STATS) + k
            plane[start : start + len(at), : blob.sites] = blob.columns(name, wanted)
            start += len(at)
        planes[name, k] = plane
        return plane

    @cached_property
    def _tabled(self) -> npt.NDArray[np.intp]:
        """The row of time of every table, in the order in which the tables are stored."""
        return np.concatenate([np.zeros(0, np.intp), *(at for at, _ in self._packed or ())])

    @cached_property
    def _binned(self) -> bool:
        return any(blob.binned for _, blob in self._packed or ())

    def _unpacked(self, name: str) -> npt.NDArray[np.float32]:
        laid = np.empty((len(self), self._sites, len(STATS)), np.float32)
        laid[~self.read] = UNSEEN
        for at, blob in self._packed or ():
            laid[at, : blob.sites] = blob.table(name)
            laid[at, blob.sites :] = UNSEEN
        return laid


def check_rows(history: History) -> None:
    """Raise ValueError for rows of time that no run has: arithmetic with them could overflow 64 bits."""
    for name, least, most in (("steps", 0, FARTHEST), ("width", 1, FARTHEST), ("stream", 0, _STREAMS)):
        values = getattr(history, name)
        wrong = np.flatnonzero((values < least) | (values > most))
        if len(wrong):
            raise ValueError(f"history.{name} is {int(values[wrong[0]])} in row {int(wrong[0])}")
    back = np.flatnonzero(np.diff(history.steps) < 0)
    if len(back):
        before, after = (int(history.steps[back[0] + k]) for k in (0, 1))
        raise ValueError(f"history.steps goes back from {before} to {after}")


def history_of(scalars: Sequence[codec.Blob], tables: Sequence[codec.Blob], sites: int) -> tuple[History, int]:
    """Merge blocks of scalars and blocks of tables in the order of time. Return the history and the number of steps.

    A step that is at full resolution in both parts is one row, and so is a bin of the same steps in both. A table that
    is thinned at another time than its scalars has a row of its own, in which no scalar was measured. ``scalars`` may
    hold tables too, as blocks of version 1 did.
    """
    parts = [blob.rows() for blob in scalars]
    if not parts:
        return empty_history(), 0
    plain = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS}
    ends = np.cumsum([len(part) for part in parts])
    spans: list[npt.NDArray[np.intp]] = [np.arange(end - len(part), end) for part, end in zip(parts, ends, strict=True)]
    packed = [(at, blob) for at, blob in zip(spans, scalars, strict=True) if blob.sites]
    steps = int(plain["folded"].sum())
    # Tables join the rows of their own steps; those that match none get rows of their own behind all others.
    if tables:
        others = [blob.rows() for blob in tables]
        other = {name: np.concatenate([getattr(part, name) for part in others]) for name in _ROWS}
        at, alone = _places(plain, other)
        plain = {name: np.concatenate([plain[name], other[name][alone]]) for name in _ROWS}
        packed += zip(np.split(at, np.cumsum([len(part) for part in others])[:-1]), tables, strict=True)
    # Blocks of different levels and streams overlap in time, so rows are sorted by the number of their first step.
    total = len(plain["ordinal"])
    order = np.argsort(plain["ordinal"], kind="stable")
    row_of = np.empty(total, np.intp)
    row_of[order] = np.arange(total)
    sites = max([sites, *(blob.sites for _, blob in packed)])
    return StoredHistory.of(
        {name: plain[name][order] for name in _ROWS},
        _scalars(parts, [row_of[span] for span in spans], total),
        [(row_of[at], blob) for at, blob in packed],
        sites,
    ), steps


def _places(
    plain: dict[str, npt.NDArray[Any]], other: dict[str, npt.NDArray[Any]]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return the row of each table, and a mask of the tables that match no row of scalars: their rows come after all
    others.
    """
    finder = np.argsort(plain["ordinal"], kind="stable")
    found = np.searchsorted(plain["ordinal"], other["ordinal"], sorter=finder)
    at = finder[np.minimum(found, len(finder) - 1)]
    alone = ~np.all([plain[name][at] == other[name] for name in ("ordinal", "folded", "width")], axis=0)
    at[alone] = np.arange(len(finder), len(finder) + int(alone.sum()))
    return at, alone


def _scalars(
    parts: Sequence[Block], spans: Sequence[npt.NDArray[np.intp]], total: int
) -> dict[str, npt.NDArray[np.float64]]:
    found = {name: np.full(total, np.nan) for part in parts for name in part.names}
    for part, at in zip(parts, spans, strict=True):
        for name, values in zip(part.names, part.scalars.T, strict=True):
            found[name][at] = values
    return found
