"""Layers by columns of time: a statistic of all sites of a kind, reduced by layer and read at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.errors import ConfigError
from neuraldbg.layer_alias import resolve
from neuraldbg.nouns import STATS
from neuraldbg.nouns.layout import RECTIFIERS
from neuraldbg.show.forms import Scale

if TYPE_CHECKING:
    from collections.abc import Collection

    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.run import Reduce
    from neuraldbg.show.forms import Bools, Floats
    from neuraldbg.show.views.columns import Columns

KINDS = {
    "param_grad": "gradient of the parameters",
    "output_grad": "gradient at the output",
    "activation": "output",
    "param": "parameters",
    "update": "update of the parameters",
    "input": "input of the model",
    "op": "operand in the loss",
}
"""The kinds of sites that have tables, in words."""
SHARES = {"nonfinite": "count", "zeros": "count", "saturated": "count", "under": "count", "over": "count"}
SHARES |= {"dead": "units"}
"""Counts that are shown as a share, with the count of their whole: layers differ in size."""
NORM = "norm"
"""L2 norm of all sites of a layer together, which no table has; it follows from rms and total."""
OF_OUTPUTS = ("dead", "saturated", "units")
EXTREMES = {"min": "min", "mean": "extreme"}
"""Reduction of steps, and of sites of a layer, for statistics that are not reduced by their maximum."""


def check(kind: str, stat: str) -> None:
    """Raise ConfigError for a kind or a statistic that no record has."""
    if kind not in KINDS:
        raise ConfigError(f"there is no kind of sites {kind!r}: choose one of {', '.join(KINDS)}")
    if stat != NORM and stat not in STATS:
        raise ConfigError(f"there is no statistic {stat!r}: choose one of {NORM}, {', '.join(STATS)}")
    if stat in OF_OUTPUTS and kind != "activation":
        raise ConfigError(f"there are {stat} units of outputs only: --kind activation")


def scale_of(stat: str) -> Scale:
    """Return the axis of a statistic."""
    if stat in SHARES:
        return Scale(f"{stat}, share of the {'units' if SHARES[stat] == 'units' else 'elements read'}", "%")
    words = {NORM: "L2 norm", "rms": "root mean square", "std": "standard deviation"}
    return Scale(words.get(stat, stat), log=stat in words)


@dataclass(frozen=True)
class Group:
    """The sites of one kind, by layer in data-flow order."""

    run: RunRecord
    kind: str
    layers: tuple[str, ...]
    rows: tuple[int, ...]
    """Rows of the tables, layer by layer."""
    starts: tuple[int, ...]
    """Index in ``rows`` at which each layer begins."""

    def ends(self, columns: Columns, stat: str) -> tuple[Floats, Floats, Floats]:
        """Return the mean, the least and the largest ``norm`` or ``rms`` of each layer, shape (layers, C) each, where a
        column is one row of the record. The ends of the norm of several sites are those of all of them at once.
        """
        if not self.layers:
            nothing = np.zeros((0, len(columns.steps)))
            return nothing, nothing, nothing
        found = []
        ends: tuple[Reduce, ...] = ("mean", "min", "max")
        for end in ends:
            square = self._stored(columns, "rms", end) ** 2
            total = self._stored(columns, "total", "max")
            whole = self._sum(square * total)
            found.append(np.sqrt(whole if stat == NORM else whole / np.maximum(self._sum(total), 1)).T)
        return found[0], found[1], found[2]

    def values(self, columns: Columns, stat: str) -> Floats:
        """Return a statistic of each layer, shape (layers, C), shares in per cent; NaN if it was not read, and for dead
        units of layers without a rectifier.
        """
        if not self.layers:
            return np.zeros((0, len(columns.steps)))
        if stat == NORM:
            square = self._stored(columns, "rms", "max") ** 2 * self._stored(columns, "total", "max")
            return np.sqrt(columns.together(self._sum(square), "max").T)
        if stat in SHARES:
            among = self._sum(self._stored(columns, SHARES[stat], "max"))
            counted = self._sum(self._stored(columns, stat, "max"))
            share = np.divide(100.0 * counted, among, out=np.full(among.shape, np.nan), where=among > 0)
            if stat == "dead":
                # Of a ReLU whose whole output is zero all units are silent, however few rows were read.
                zeros, count = (self._sum(self._stored(columns, name, "max")) for name in ("zeros", "count"))
                silent = (among == 0) & (count > 0) & (zeros >= count) & self._of(RECTIFIERS)
                share[silent] = 100.0
                share[:, [layer not in self.run.layout.rectified for layer in self.layers]] = np.nan
            return columns.together(share, "max").T
        largest = columns.together(self._stored(columns, stat, "max"), "max")
        high = np.fmax.reduceat(largest, self.starts, axis=1).T
        if stat not in EXTREMES:
            return high
        least = columns.together(self._stored(columns, stat, "min"), "min")
        low = np.fmin.reduceat(least, self.starts, axis=1).T
        return low if stat == "min" else np.where(np.abs(low) > np.abs(high), low, high)

    def nonfinite(self, columns: Columns) -> Bools:
        """Return a mask (layers, C) of NaN or infinite values."""
        if not self.layers:
            return np.zeros((0, len(columns.steps)), bool)
        found = columns.together(self._sum(self._stored(columns, "nonfinite", "max")), "max").T
        return np.asarray(found > 0)

    def _of(self, types: Collection[str]) -> Bools:
        """Return a mask of the layers of some types, shape (layers,)."""
        known = self.run.layout.by_path
        return np.array([layer in known and known[layer].type in types for layer in self.layers], bool)

    def _sum(self, values: Floats) -> Floats:
        """Sum values over the sites of each layer; NaN if none of them was read."""
        if len(self.starts) == len(self.rows):  # a site a layer: nothing to add up
            return np.where(np.isfinite(values), values, np.nan)
        seen = np.isfinite(values)
        total = np.add.reduceat(np.where(seen, values, 0.0), self.starts, axis=1)
        return np.where(np.logical_or.reduceat(seen, self.starts, axis=1), total, np.nan)

    def _stored(self, columns: Columns, stat: str, end: Reduce) -> Floats:
        """Return a stored statistic of the rows of the columns, shape (rows, sites); NaN if a site was not read, where
        the table has a count of zero.
        """
        values = self.run.history.stat(self.rows, stat, end)[columns.rows]
        values[~self._seen[columns.rows]] = np.nan
        return values

    @cached_property
    def _seen(self) -> Bools:
        return np.asarray(self.run.history.stat(self.rows, "count", "max") > 0)


def group(run: RunRecord, kind: str, layer: str | None = None, among: Collection[str] | None = None) -> Group:
    """Return the sites of a kind, of one named layer or of some layers only.

    An unknown name raises UnknownLayer.
    """
    only = None if layer is None else resolve(run.layout, layer)
    found: dict[str, list[int]] = {}
    for row in run.layout.rows(kind):
        path = run.layout.sites[row].module
        inside = not only or path == only or path.startswith(f"{only}.")
        if inside and (among is None or path in among):
            found.setdefault(path, []).append(row)
    rank = run.layout.depth
    ordered = sorted(found, key=lambda path: rank.get(path, len(rank)))
    rows = tuple(row for path in ordered for row in found[path])
    lengths = [len(found[path]) for path in ordered]
    starts = tuple(int(n) for n in np.cumsum([0, *lengths[:-1]])) if lengths else ()
    return Group(run, kind, tuple(ordered), rows, starts)
