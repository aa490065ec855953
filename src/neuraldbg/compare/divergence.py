"""The first difference of two runs, in the order of time and, within a step, of data flow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.compare.measure import MOMENTS, rounded
from neuraldbg.compare.scalars import usual
from neuraldbg.compare.sites import LAST, position
from neuraldbg.compare.tolerance import RTOL
from neuraldbg.compare.trend import trend_of
from neuraldbg.nouns import column
from neuraldbg.nouns.comparison import Difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from neuraldbg.compare.alignment import Side, Stretches
    from neuraldbg.compare.measure import Measured
    from neuraldbg.compare.scalars import ScalarPair
    from neuraldbg.compare.sites import Key, SitePair
    from neuraldbg.nouns import History, RunRecord
    from neuraldbg.nouns.comparison import Trend

    Bools = npt.NDArray[np.bool_]

NOISE = 0.1
"""Relative difference above which a gradient within the tolerance of its layer's size is rounding noise."""


@dataclass(frozen=True)
class Found:
    """A first difference of two runs, with its position and its trend."""

    difference: Difference
    trend: Trend | None
    key: tuple[int, Key]
    """Step, and position within the step."""


@dataclass(frozen=True)
class Findings:
    """The measured differences of two runs, from which the first one is found."""

    runs: tuple[RunRecord, RunRecord]
    pairs: Sequence[SitePair]
    time: Stretches
    measured: Measured
    losses: Sequence[ScalarPair]
    names: tuple[str, str] = ("A", "B")

    def first(self, *, beyond: bool) -> Found | None:
        """Return the first difference beyond the tolerance, or of any size; None if there is none."""
        candidates = [self._site(self.measured.beyond if beyond else self.measured.differs)]
        candidates += [self._loss(pair, pair.beyond if beyond else pair.differs) for pair in self.losses]
        return min((found for found in candidates if found is not None), key=lambda found: found.key, default=None)

    def sourced(self, first: Difference) -> bool:
        """Return True if what the first difference is computed from was compared in the same step."""
        if first.kind == "loss":
            return self._outputs(first.step)
        if first.kind in ("input", "param", "activation"):
            return True
        g = int(np.flatnonzero(self.time.steps == first.step)[0])
        pair = next(p for p in self.pairs if (p.one.kind, p.one.label) == (first.kind, first.site))
        return self.without_gradients is None and self._read_before(first.kind, pair, g)

    def _site(self, hit: Bools) -> Found | None:
        at = np.flatnonzero(hit.any(axis=1))
        if not len(at):
            return None
        g, p = int(at[0]), int(hit[at[0]].argmax())
        pair, step = self.pairs[p], int(self.time.steps[g])
        stat, one, other = self._worst(pair, g)
        difference = Difference(
            step=step,
            last=step + int(self.time.width[g]) - 1,
            since=int(self.time.steps[g - 1] + self.time.width[g - 1] - 1) if g else None,
            kind=pair.one.kind,
            layer=pair.one.module,
            site=pair.one.label,
            stat=stat,
            one=one,
            other=other,
            relative=float(self.measured.relative[g, p]),
            absolute=abs(one - other),
            reading=self._reading(g, p, stat),
            also=int(hit[g].sum()) - 1,
            other_layer=pair.other.module if pair.other.module != pair.one.module else None,
        )
        return Found(difference, self.course(g, self.measured.relative[g:, p], [p]), (step, pair.key))

    def course(self, g: int, relative: npt.NDArray[np.floating], among: Sequence[int]) -> Trend | None:
        """Return the trend of a difference from a stretch on, with the run that became non-finite if one did.

        ``among`` are the pairs of the difference.
        """
        trend = trend_of(self.time.steps[g:], relative)
        if trend is None or trend.broke is None:
            return trend
        at = int(np.flatnonzero(self.time.steps == trend.broke)[0])
        odd = [p for p in among if np.isinf(self.measured.relative[at, p])]
        bad = [sum(self._nonfinite(k, at, self.pairs[p].rows[k]) for p in odd) for k in (0, 1)]
        return replace(trend, broken=int(bad[1] > bad[0]))

    def _nonfinite(self, k: int, g: int, row: int) -> bool:
        side = (self.time.one, self.time.other)[k]
        return bool(_table(self.runs[k].history, side, g, row, low=False)[column("nonfinite")] > 0)

    def _loss(self, pair: ScalarPair, hit: Bools) -> Found | None:
        at = np.flatnonzero(hit)
        if not len(at):
            return None
        g = int(at[0])
        step, one, other = int(pair.time.steps[g]), float(pair.one[g]), float(pair.other[g])
        if self._outputs(step):
            reading = (
                "inputs, weights and outputs are equal as far as they were read: the loss function or the targets are "
                "not"
            )
        else:
            reading = self._batches(step, pair.stream) or (
                "no output of a layer was read in both runs at this step: the loss is all there is to compare"
            )
        difference = Difference(
            step=step,
            last=step + int(pair.time.width[g]) - 1,
            since=int(pair.time.steps[g - 1] + pair.time.width[g - 1] - 1) if g else None,
            kind="loss",
            layer=None,
            site="loss" if len(self.losses) == 1 else f"loss of optimizer {pair.stream}",
            stat="loss",
            one=one,
            other=other,
            relative=float(pair.relative[g]),
            absolute=abs(one - other),
            reading=reading,
        )
        key = (step, position("loss", LAST))
        trend = trend_of(pair.time.steps[g:], pair.relative[g:])
        if trend is not None and trend.broke is not None:
            end = int(np.flatnonzero(pair.time.steps == trend.broke)[0])
            trend = replace(trend, broken=int(bool(np.isfinite(pair.one[end]))))
        return Found(difference, trend, key)

    def _worst(self, pair: SitePair, g: int) -> tuple[str, float, float]:
        """Return the statistic that differs most for its size, with both values; the rms if it does about as much."""
        tables = [
            (
                _table(run.history, side, g, pair.rows[k], low=False),
                _table(run.history, side, g, pair.rows[k], low=True),
            )
            for k, (run, side) in enumerate(zip(self.runs, (self.time.one, self.time.other), strict=True))
        ]
        for stat in ("count", "total", "nonfinite"):
            one, other = (float(high[column(stat)]) for high, _ in tables)
            if one != other and (stat != "count" or 0 in {one, other}):
                return stat, one, other
        off: dict[str, tuple[float, float, float]] = {}
        for stat in (*MOMENTS, "zeros"):
            k = column(stat)
            both = [(float(tables[0][i][k]), float(tables[1][i][k])) for i in (0, 1)]
            one, other = max(both, key=lambda pair: abs(np.nan_to_num(pair[0] - pair[1])))
            off[stat] = (float(abs(np.nan_to_num(one - other))), one, other)
        size = np.asarray(max(abs(value) for value in off["rms"][1:]))
        if rounded(np.asarray(off["std"][1]), np.asarray(off["std"][2]), size, RTOL["float32"]):
            off["std"] = (0.0, *off["std"][1:])
        # As measured: moments relative to the root mean square, extremes to the largest element.
        span = max(float(np.abs(np.nan_to_num(value))) for stat in ("min", "max") for value in off[stat][1:])
        over = {stat: span if stat in ("min", "max") else float(np.nan_to_num(size)) for stat in MOMENTS}
        shares = {stat: off[stat][0] / over[stat] if over[stat] else 0.0 for stat in MOMENTS}
        most = max(MOMENTS, key=lambda stat: shares[stat])
        if shares["rms"] > 0 and 2 * shares["rms"] >= shares[most]:
            most = "rms"
        return (most, *off[most][1:]) if off[most][0] > 0 else ("zeros", *off["zeros"][1:])

    def _outputs(self, step: int) -> bool:
        """Return True if any layer's output was compared at a step."""
        g = np.flatnonzero((self.time.steps <= step) & (step < self.time.steps + self.time.width))
        at = [p for p, pair in enumerate(self.pairs) if pair.one.kind == "activation"]
        return bool(len(g)) and not bool(np.isnan(self.measured.relative[int(g[0]), at]).all())

    def _reading(self, g: int, p: int, stat: str) -> str:
        pair = self.pairs[p]
        kind = pair.one.kind
        if kind == "input":
            return self._other_data(g, stat)
        if stat == "count" or kind == "update":
            lone = self.without_gradients
            if lone is not None and kind in ("param_grad", "output_grad", "update"):
                return f"no gradients at all in {self.names[lone]}: no backward pass reached its weights"
        if stat == "count":
            return ""  # the summary says which run has it
        if self.measured.differs[:g].any() or self.measured.differs[g, :p].any():
            noise = self._noise(g, p) if kind == "update" else ""
            return (
                noise
                or "all before it agrees within the tolerance, but not exactly: a small difference has grown to this"
            )
        if kind == "param":
            return self._weights(g, stat)
        if kind == "activation":
            return self._computed(pair, g)
        return _READINGS[kind] if self._read_before(kind, pair, g) else _UNREAD.get(kind, "")

    def _weights(self, g: int, stat: str) -> str:
        """Write the meaning of a difference of weights before anything else differs."""
        if stat == "total":
            return "the layer has another size"
        if g == 0:
            return "the weights differ before they were trained: another initialisation, seed or checkpoint"
        return "no update that was read explains it: the weights were changed outside of the optimizer's steps"

    @cached_property
    def without_gradients(self) -> int | None:
        """Index of the run without any gradient of a weight, if the other has some; else None."""
        have = []
        for run in self.runs:
            rows = run.layout.rows("param_grad")
            have.append(bool(len(run.history) and rows and (run.history.stat(rows, "count", "max") > 0).any()))
        return have.index(False) if have[0] != have[1] and all(run.history.read.any() for run in self.runs) else None

    def _read_before(self, kind: str, pair: SitePair, g: int) -> bool:
        """Return True if what a site is computed from was compared at a stretch."""
        seen = ~np.isnan(self.measured.relative[g])
        if kind == "update":
            own = ("param_grad", pair.one.module, pair.one.name)
            return any(seen[q] and (x.one.kind, x.one.module, x.one.name) == own for q, x in enumerate(self.pairs))
        source = {"param_grad": "output_grad"}.get(kind, "activation")
        return any(seen[q] and x.one.kind == source for q, x in enumerate(self.pairs))

    def _other_data(self, g: int, stat: str) -> str:
        said = "the models got other data, or the same data in another order"
        if stat == "total":
            stream = int(self.runs[0].history.stream[self.time.one.rows[self.time.one.starts[g]]])
            said = self._batches(int(self.time.steps[g]), stream) or "the inputs are not of the same size"
        weights = [p for p, pair in enumerate(self.pairs) if pair.one.kind == "param" and self.measured.beyond[g, p]]
        if weights:
            return f"{said}; the weights differ in the same step, too, so that is not all"
        return f"{said}; what differs later may follow from that alone"

    def _batches(self, step: int, stream: int) -> str:
        """Write the sizes of both batches of a step; "" if they are equal or not known."""
        sizes = [run.scalar("batch_size", stream).at(step) for run in self.runs]
        if sizes[0] == sizes[1] or not np.isfinite(sizes).all():
            return ""
        both = [f"{size:,.0f} samples in {name}" for size, name in zip(sizes, self.names, strict=True)]
        said = f"the batch of this step has {' and '.join(both)}"
        usuals = [usual(run, "batch_size", stream) for run in self.runs]
        if usuals[0] != usuals[1] or not usuals[0]:
            return said
        return f"{said}, but {usuals[0]:,} in most steps of both: perhaps the last batch of an epoch"

    def _noise(self, g: int, p: int) -> str:
        """Write the reason for a difference of an update whose gradient is zero except for rounding; else empty."""
        site = self.pairs[p].one
        for q, pair in enumerate(self.pairs):
            own = (pair.one.kind, pair.one.module, pair.one.name) == ("param_grad", site.module, site.name)
            if own and self.measured.relative[g, q] > NOISE and not self.measured.beyond[g, q]:
                return (
                    "its gradient is zero but for rounding, which is not the same in both runs, and the optimizer "
                    "scales it up to an update: this may change nothing that the model computes"
                )
        return ""

    def _computed(self, pair: SitePair, g: int) -> str:
        """Write the reason for a difference of an output whose inputs do not differ; else empty."""
        layers = [
            run.layout.by_path.get(site.module) for run, site in zip(self.runs, (pair.one, pair.other), strict=True)
        ]
        names = [set(layer.params) if layer is not None else set() for layer in layers]
        read = {
            x.one.name
            for q, x in enumerate(self.pairs)
            if (x.one.kind, x.one.module) == ("param", pair.one.module) and not np.isnan(self.measured.relative[g, q])
        }
        if names[0] != names[1]:
            return "the layer's parameters are not the same"
        if names[0] - read:
            return f"not all weights of the layer were read in both: {', '.join(sorted(names[0] - read))}"
        what = "inputs and weights up to here are equal, so the layer computes something else: "
        if pair.one.dtype and pair.other.dtype and pair.one.dtype != pair.other.dtype:
            return f"{what}{pair.one.dtype} against {pair.other.dtype}"
        kind = layers[0].type if layers[0] is not None else ""
        if "Dropout" in kind:
            return f"{what}other random numbers, another p, or another mode"
        if "BatchNorm" in kind:
            return f"{what}another mode, or other running statistics"
        return f"{what}its code, its mode, its random numbers, or what the code does before it"


def _table(history: History, side: Side, g: int, row: int, *, low: bool) -> npt.NDArray[np.float64]:
    """Return the statistics of one site over one stretch, shape (K,)."""
    last = side.starts[g + 1] if g + 1 < len(side.starts) else len(side.rows)
    rows = side.rows[side.starts[g] : last]
    tables = np.stack([history.row(int(at), "min" if low else "max")[row] for at in rows]).astype(np.float64)
    found: npt.NDArray[np.float64] = (np.fmin if low else np.fmax).reduce(tables, axis=0)
    return found


_READINGS = {
    "op": "inputs, weights and outputs are equal: the loss function or the targets are not",
    "output_grad": "the forward pass and the loss are equal: the backward pass, or the scale of the loss, is not",
    "param_grad": "the gradients at the outputs are equal: how they are summed, scaled or clipped is not",
    "update": "weights and gradients are equal: the optimizer's settings or its state are not",
}
"""Meaning of the first difference at a kind of site, if what it is computed from does not differ."""
_UNREAD = {
    "op": "no output of a layer was read in both runs at this step",
    "output_grad": "no output of a layer was read in both runs at this step",
    "param_grad": "no gradient at an output was read in both runs at this step",
    "update": "the gradient of this weight was not read in both runs at this step",
}
"""Meaning of the same difference, if what it is computed from was not read in both runs."""
