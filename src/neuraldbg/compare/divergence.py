"""The first difference of two runs, in the order of time and, within a step, of data flow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.compare.measure import MOMENTS
from neuraldbg.compare.sites import LAST, position
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

    def first(self, *, beyond: bool) -> Found | None:
        """Return the first difference beyond the tolerance, or of any size; None if there is none."""
        candidates = [self._site(self.measured.beyond if beyond else self.measured.differs)]
        candidates += [self._loss(pair, pair.beyond if beyond else pair.differs) for pair in self.losses]
        return min((found for found in candidates if found is not None), key=lambda found: found.key, default=None)

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
        reading = (
            "inputs, weights and outputs are equal as far as they were read: the loss function or the targets are not"
            if self._outputs(step)
            else "no output of a layer was read in both runs at this step: the loss is all there is to compare"
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
        """Return the statistic that differs most, with both values; the rms if it differs about as much."""
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
        most = max(MOMENTS, key=lambda stat: off[stat][0])
        if off["rms"][0] > 0 and 2 * off["rms"][0] >= max(off[s][0] for s in ("mean", "std", "rms")):
            most = "rms"
        return (most, *off[most][1:]) if off[most][0] > 0 else ("zeros", *off["zeros"][1:])

    def _outputs(self, step: int) -> bool:
        """Return True if any layer's output was compared at a step."""
        g = np.flatnonzero((self.time.steps <= step) & (step < self.time.steps + self.time.width))
        at = [p for p, pair in enumerate(self.pairs) if pair.one.kind == "activation"]
        return bool(len(g)) and not bool(np.isnan(self.measured.relative[int(g[0]), at]).all())

    def _reading(self, g: int, p: int, stat: str) -> str:
        kind = self.pairs[p].one.kind
        if kind == "input":
            return self._other_data(g, stat)
        if stat == "count":
            return "only one of the runs has it at this step"
        if self.measured.differs[:g].any() or self.measured.differs[g, :p].any():
            noise = self._noise(g, p) if kind == "update" else ""
            return (
                noise
                or "all before it agrees within the tolerance, but not exactly: a small difference has grown to this"
            )
        if kind == "param":
            if g == 0:
                return "the weights differ before they were trained: another initialisation, seed or checkpoint"
            return "no update that was read explains it: the weights were changed apart from the optimizer's steps"
        return self._computed(self.pairs[p]) if kind == "activation" else _READINGS.get(kind, "")

    def _other_data(self, g: int, stat: str) -> str:
        said = (
            "the batches are not of the same size"
            if stat == "total"
            else "the models were given other data, or the same in another order"
        )
        weights = [p for p, pair in enumerate(self.pairs) if pair.one.kind == "param" and self.measured.beyond[g, p]]
        if weights:
            return f"{said}; the weights differ in the same step, too, so that is not all"
        return f"{said}: what differs later may follow from that alone"

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

    def _computed(self, pair: SitePair) -> str:
        """Write the reason for a difference of an output whose inputs do not differ; else empty."""
        layers = [
            run.layout.by_path.get(site.module) for run, site in zip(self.runs, (pair.one, pair.other), strict=True)
        ]
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
