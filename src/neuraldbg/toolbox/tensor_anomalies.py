"""The anomalies of the tensors that were handed over: statistics enter, one anomaly for each kind and name leaves."""

from __future__ import annotations

import math
import statistics
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuraldbg.nouns.html import number_text
from neuraldbg.nouns.measures import percent
from neuraldbg.toolbox.number_formats import format_of
from neuraldbg.toolbox.value_table import named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.toolbox.tensor_statistics import TensorStatistics

SERIOUS = ("nan", "inf", "near_overflow", "near_underflow", "scale_up", "scale_down", "dtype_changed", "shape_changed")
"""Kinds that point to a fault; ``constant``, ``all_zero`` and ``outliers`` may be meant."""
NEAR = 16.0
"""Factor below the largest number of a dtype from which on a tensor is near its overflow: four bits are left. Own."""
LOST = 0.5
"""Share of the nonzero elements that must be denormal for a tensor to be near underflow: half have lost digits. Own."""
FAR = 100.0
"""Interquartile ranges beyond the quartile from which on the farthest outlier is an anomaly. Own: a million normal
numbers reach 3.1, a million of a Laplace distribution 9."""
JUMP = 10.0
"""Factor between the rms of a tensor and the median of the earlier ones of its name that is a sudden change. Own."""
SPREAD = 3.0 * 1.4826
"""Median absolute deviations of the earlier logarithms that a change must exceed, too: three standard deviations of
normal numbers (Leys et al. 2013, Detecting outliers)."""
HISTORY = 50
"""Earlier tensors of a name that are remembered."""
LEAST = 5
"""Earlier tensors of a name below which no change is judged."""


@dataclass(frozen=True)
class TensorAnomaly:
    """One kind of anomaly of the tensors of one name."""

    kind: str
    """``nan``, ``inf``, ``constant``, ``all_zero``, ``near_overflow``, ``near_underflow``, ``outliers``, ``scale_up``,
    ``scale_down``, ``shape_changed`` or ``dtype_changed``."""
    name: str
    """Name of the tensor."""
    layer: str | None
    """Its layer, None if none was given."""
    operation: str | None
    """Its operation, None if none was given."""
    text: str
    """The fact with its numbers, as measured first."""
    first_id: int
    """Id of the first tensor with it."""
    first_step: int
    """Its step."""
    last_id: int
    """Id of the last tensor with it."""
    last_step: int
    """Its step."""
    count: int = 1
    """Number of tensors with it."""

    @property
    def serious(self) -> bool:
        """True for kinds that point to a fault; the others may be meant: fresh biases are zero."""
        return self.kind in SERIOUS

    def __str__(self) -> str:
        where = f" of layer {self.layer}" if self.layer else ""
        when = f"at step {self.first_step:,}"
        if self.count > 1:
            when = f"in {self.count:,} tensors from step {self.first_step:,} to {self.last_step:,}"
        return f"{self.name}{where}: {self.text} ({when})"


@dataclass
class _Past:
    """The earlier tensors of one name, as far as they are remembered."""

    logs: deque[float]
    shape: tuple[int, ...]
    dtype: str
    same_since: int | None = None
    """Step since which the tensors are constant or zero, None if the last one was not."""


class AnomalyLog:
    """Judges each tensor as it comes, and keeps the anomalies: in constant memory, as names are forgotten in order."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._past: OrderedDict[tuple[str, str | None, str | None], _Past] = OrderedDict()
        self._found: OrderedDict[tuple[str, str, str | None, str | None], TensorAnomaly] = OrderedDict()
        self.dropped = 0
        """Number of anomalies that were dropped because there were too many; the oldest go first."""

    def add(
        self, number: int, key: tuple[str, str | None, str | None], step: int, stats: TensorStatistics, *, weight: bool
    ) -> None:
        """Judge the tensor with the id ``number``. ``key`` is its name, layer and operation; ``weight`` is True for a
        parameter, which may be constant as long as it was not trained.
        """
        past = self._past.get(key)
        for kind, text in self._judged(stats, past, step, weight=weight):
            self._note(TensorAnomaly(kind, *key, text, number, step, number, step))
        # What came is a part of the past only now.
        if past is None:
            past = self._past[key] = _Past(deque(maxlen=HISTORY), stats.shape, stats.dtype)
            if len(self._past) > self._limit:
                self._past.popitem(last=False)
        self._past.move_to_end(key)
        past.shape, past.dtype = stats.shape, stats.dtype
        past.same_since = _since(past, step) if stats.constant else None
        if stats.rms > 0 and math.isfinite(stats.rms):
            past.logs.append(math.log10(stats.rms))

    def __iter__(self) -> Iterator[TensorAnomaly]:
        yield from list(self._found.values())

    def _note(self, new: TensorAnomaly) -> None:
        key = (new.kind, new.name, new.layer, new.operation)
        old = self._found.get(key)
        if old is not None:
            self._found[key] = replace(old, last_id=new.last_id, last_step=new.last_step, count=old.count + 1)
            return
        self._found[key] = new
        if len(self._found) > self._limit:
            self._found.popitem(last=False)
            self.dropped += 1

    def _judged(
        self, stats: TensorStatistics, past: _Past | None, step: int, *, weight: bool
    ) -> Iterator[tuple[str, str]]:
        yield from _nonfinite(stats)
        trained = not weight or (past is not None and past.same_since is not None and past.same_since < step)
        if stats.constant and trained:
            after = " since it was made" if weight else ""
            if stats.max == 0:
                yield "all_zero", f"all {stats.count:,} elements read are zero{after}"
            else:
                yield "constant", f"all {stats.count:,} elements read are {number_text(stats.max)}{after}"
        yield from _range(stats)
        yield from _outliers(stats)
        if past is not None:
            yield from _changes(stats, past, weight=weight)


def _since(past: _Past, step: int) -> int:
    return step if past.same_since is None else past.same_since


def _nonfinite(stats: TensorStatistics) -> Iterator[tuple[str, str]]:
    if stats.nan:
        yield "nan", f"{stats.nan:,} of {stats.count:,} elements read are NaN"
    if stats.posinf or stats.neginf:
        kinds = [f"{n:,} {name}" for name, n in (("+Inf", stats.posinf), ("-Inf", stats.neginf)) if n]
        yield "inf", f"{named(kinds)} among {stats.count:,} elements read"


def _range(stats: TensorStatistics) -> Iterator[tuple[str, str]]:
    """Judge the range by the tensor's own dtype. Narrow formats are scaled so that they use all of their range."""
    found = format_of(stats.dtype)
    if found is None or stats.dtype.startswith(("float8", "float6", "float4")) or not stats.finite:
        return
    if stats.max_norm > found.largest / NEAR:
        most = number_text(found.largest)
        yield "near_overflow", f"magnitudes up to {number_text(stats.max_norm)}, where {stats.dtype} ends at {most}"
    nonzero = stats.finite - stats.zeros
    if nonzero and stats.denormals > LOST * nonzero:
        share = percent(stats.denormals / nonzero)
        yield "near_underflow", f"{share} of the nonzero elements are denormal in {stats.dtype} and have lost digits"


def _outliers(stats: TensorStatistics) -> Iterator[tuple[str, str]]:
    out = stats.outliers
    if out is None or out.farthest is None:
        return
    first, third = stats.quantiles[0.25], stats.quantiles[0.75]
    reach = third - first
    if not 0 < reach < math.inf:  # most elements are the same: as zeros after a rectifier, whose others are no outliers
        return
    beyond = max(first - out.farthest, out.farthest - third) / reach
    if beyond > FAR:
        place = list(out.index or ())
        yield (
            "outliers",
            f"{number_text(out.farthest)} at {place} is {number_text(beyond)} interquartile ranges from the others",
        )


def _changes(stats: TensorStatistics, past: _Past, *, weight: bool) -> Iterator[tuple[str, str]]:
    """Judge a tensor by the earlier ones of its name."""
    if stats.dtype != past.dtype:
        yield "dtype_changed", f"dtype {stats.dtype}, before {past.dtype}"
    # The last batch is often smaller; a weight has no batch.
    if stats.shape != past.shape and (weight or stats.shape[1:] != past.shape[1:] or not (stats.shape and past.shape)):
        yield "shape_changed", f"shape {stats.shape}, before {past.shape}"
    if len(past.logs) < LEAST or not stats.rms > 0 or math.isinf(stats.rms):
        return
    usual = statistics.median(past.logs)
    spread = statistics.median(abs(one - usual) for one in past.logs)
    jump = math.log10(stats.rms) - usual
    if abs(jump) > max(math.log10(JUMP), SPREAD * spread):
        factor = 10.0 ** abs(jump)
        way = "times" if jump > 0 else "times less than"
        yield (
            "scale_up" if jump > 0 else "scale_down",
            f"rms {number_text(stats.rms)}, {number_text(factor)} {way} the median of the {len(past.logs)} before",
        )
