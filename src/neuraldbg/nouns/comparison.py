"""The comparison of two runs: the first difference, its size and trend, and all other differences.

The first run is called ``one`` and the second ``other`` throughout. Layers are named by their path in the first run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

COMPARISON_SCHEMA = "neuraldbg.comparison/1"
COMPARISONS = ("identical", "close", "diverged", "incomparable")
"""Verdicts of a comparison. ``identical``: no statistic that was compared differs in any bit. ``close``: all within the
tolerance. ``diverged``: some are not. ``incomparable``: no site was read in both runs at the same steps, so nothing is
claimed."""


@dataclass(frozen=True)
class Tolerance:
    """The tolerance: values agree up to a difference of ``atol + rtol * size``, the size being the tensor's."""

    rtol: float
    """Relative tolerance."""
    atol: float
    """Absolute tolerance, in the unit of the values."""
    source: str
    """Origin of ``rtol``: the dtype whose default it is, or that the caller passed it."""


@dataclass(frozen=True)
class Difference:
    """The first place, in the order of time and of data flow, at which two runs do not agree."""

    step: int
    """First step of the row of the record."""
    last: int
    """Last step of the row of the record; more than ``step`` if older steps were thinned."""
    since: int | None
    """Last step before ``step`` that was compared and agreed. None if there is none."""
    kind: str
    """One of KINDS, or a scalar: ``loss``, ``grad_norm``."""
    layer: str | None
    """Path of the layer. None for a scalar."""
    site: str
    """Label of the site: ``fc1.weight``, ``conv2``, ``loss``."""
    stat: str
    """Name of the statistic that differs most."""
    one: float
    """Value of the statistic in the first run."""
    other: float
    """Value of the statistic in the second run."""
    relative: float
    """Largest difference of any statistic of the site, relative to the size of the tensor; infinite if only one run has
    NaN or infinite values."""
    absolute: float
    """Absolute difference of the statistic."""
    reading: str
    """Sentence that interprets this place as the first one."""
    also: int = 0
    """Number of other sites that differ in the same step."""
    other_layer: str | None = None
    """Path of the layer in the second run. None if it is the same."""


@dataclass(frozen=True)
class Trend:
    """The trend of a difference in the steps after it began."""

    course: str
    """``grows``, ``shrinks``, ``stays``, ``varies`` (up and down), or ``unknown`` with fewer than four steps."""
    factor: float
    """Factor per step: exp of the Theil-Sen slope (Sen 1968) of the logarithm of the relative difference. It describes
    a difference that grows or shrinks exponentially, and says little of any other."""
    first: int
    """First step that was evaluated."""
    last: int
    """Last step that was evaluated."""
    begin: float
    """Relative difference at the beginning: median of the first few finite values; infinite if there are none."""
    end: float
    """Relative difference at the end: median of the last few finite values; infinite if there are none."""
    readings: int
    """Number of steps with a reading."""
    broke: int | None = None
    """Step at which one run becomes NaN or infinite and the other does not; ``course`` is then ``grows``. None if there
    is none."""
    broken: int | None = None
    """Index of the run that becomes NaN or infinite: 0 or 1, as in ``names``. None if there is none."""
    low: float = 0.0
    """Smallest relative difference."""
    high: float = float("inf")
    """Largest finite relative difference; infinite if there is none."""


@dataclass(frozen=True)
class KindSpan:
    """The comparison of one kind of sites over the whole run."""

    kind: str
    """One of KINDS: ``activation``, ``param_grad``, ..."""
    sites: int
    """Number of sites."""
    differing: int
    """Number of sites beyond the tolerance at some step."""
    first: int | None
    """First step at which a site is beyond the tolerance. None if there is none."""
    largest: float
    """Largest relative difference of any site at any step."""
    read: int = 0
    """Number of steps in which a site was compared."""
    span: tuple[int, int] | None = None
    """First and last of these steps. None if there are none."""


@dataclass(frozen=True)
class LayerSpan:
    """The comparison of one layer over the whole run."""

    layer: str
    """Path of the layer."""
    first: int | None
    """First step at which one of the layer's sites is beyond the tolerance. None if there is none."""
    largest: float
    """Largest relative difference of any of the layer's sites at any step."""
    last: float
    """Largest relative difference of the layer's sites at the last step compared."""


@dataclass(frozen=True)
class LayerPair:
    """A layer that has another path in the second run, or another type at the same path."""

    one: str
    """Path in the first run."""
    other: str
    """Path in the second run."""
    how: str
    """``structure``: matched by type, settings, parameters and neighbours. ``type``: same path, another type."""
    types: tuple[str, str]
    """Types in both runs."""


@dataclass(frozen=True)
class Setting:
    """A setting or fact of the programs that differs between the runs."""

    name: str
    """Name of the setting: ``optimizer SGD: lr``, ``precision``, ..."""
    one: Any
    """Value in the first run."""
    other: Any
    """Value in the second run."""
    step: int
    """First step at which the values differ."""
    layer: str | None = None
    """Path of the layer that the setting belongs to. None if it belongs to none."""


@dataclass(frozen=True)
class LossPair:
    """The losses of both runs over the steps that both have."""

    stream: int
    """Number of the optimizer whose loss it is."""
    final: tuple[float, float]
    """Last finite loss of each run."""
    best: tuple[float, float]
    """Lowest loss of each run."""
    mean: tuple[float, float]
    """Mean finite loss of each run: the area under its curve per step."""
    parts: int | None
    """First step at which the losses differ by more than the tolerance. None if there is none."""
    apart: int | None
    """First step from which the losses always differ by more than a tenth. None if they do not at the end."""
    first_apart: int | None = None
    """First step at which the losses differ by more than a tenth. None if there is none."""
    steps_apart: int = 0
    """Number of steps in which the losses differ by more than a tenth."""
    steps: int = 0
    """Number of steps in which the losses were compared."""


@dataclass(frozen=True)
class HealthChange:
    """A difference between the runs in the health of a layer, or of the whole run."""

    what: str
    """``outcome``, ``verdict``, ``cause``, ``event``, ``dead units``, ``gradient norm``."""
    layer: str | None
    """Path of the layer. None for the whole run."""
    one: str
    """Value in the first run, in words."""
    other: str
    """Value in the second run, in words."""
    step: int | None = None
    """First step of the difference. None if it has none."""


@dataclass(frozen=True)
class Compared:
    """The amount of data that a comparison is based on."""

    steps: tuple[int, int]
    """Number of steps of each run."""
    read: int
    """Number of steps whose layers were read in both and compared, thinned ones included."""
    span: tuple[int, int] | None
    """First and last of these steps. None if there are none."""
    scalars: int
    """Number of steps whose loss was compared."""
    sites: int
    """Number of sites that were compared."""
    only: tuple[int, int]
    """Number of sites that only the first run has, and that only the second has."""
    share: float
    """Share of elements read, of all elements of the sites compared: large tensors are sampled."""


@dataclass(frozen=True)
class Drift:
    """The largest relative difference of each layer over time, for the picture."""

    layers: tuple[str, ...]
    """Paths in data-flow order, R of them; "(input)" are the inputs."""
    steps: npt.NDArray[np.int64]
    """First step of each column, shape (C,)."""
    width: npt.NDArray[np.int64]
    """Number of steps of each column, shape (C,)."""
    values: npt.NDArray[np.float32]
    """Relative differences, shape (R, C): 0 if nothing differs, NaN if nothing was compared, infinite if only one run
    has NaN."""


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two runs. ``to_dict()`` is the JSON of ``neuraldbg compare --json``.

    >>> comparison = run.compare(run, names=("one", "the same"))
    >>> print(comparison.verdict, comparison.first)
    identical None
    """

    verdict: str
    """``identical``, ``close``, ``diverged`` or ``incomparable``.

    ``identical``: no statistic that was compared differs in any bit. ``close``: all within the tolerance. ``diverged``:
    some are not. ``incomparable``: no site was read in both runs at the same steps.
    """
    summary: str
    """Sentence or two on the result."""
    names: tuple[str, str] = ("A", "B")
    """Names of the runs in sentences."""
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(0.0, 0.0, ""))
    """Largest difference at which values still agree."""
    first: Difference | None = None
    """First difference beyond the tolerance: the divergence. None if there is none."""
    earliest: Difference | None = None
    """First difference of any size: that of rounding. None if ``first`` is the earliest."""
    trend: Trend | None = None
    """Trend of the site of the first divergence. None if there is none."""
    overall: Trend | None = None
    """Trend of the median over all layers. None if there is none."""
    kinds: tuple[KindSpan, ...] = ()
    """Kinds of sites, each over the whole run."""
    layers: tuple[LayerSpan, ...] = ()
    """Layers in data-flow order."""
    settings: tuple[Setting, ...] = ()
    """Different settings, the most likely to matter first."""
    paired: tuple[LayerPair, ...] = ()
    """Layers that were matched although path or type differ."""
    only: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Paths of the layers that only the first run has, and that only the second has."""
    losses: tuple[LossPair, ...] = ()
    """Losses of both runs, one pair for each optimizer that both have."""
    verdicts: tuple[str, str] = ("", "")
    """Verdicts of both diagnoses; "" if none were passed."""
    health: tuple[HealthChange, ...] = ()
    """Differences in outcome, verdict, causes, events and layers' health."""
    compared: Compared = field(default_factory=lambda: Compared((0, 0), 0, None, 0, 0, (0, 0), 0.0))
    """Amount of data that the verdict is based on."""
    notes: tuple[str, ...] = ()
    """Sentences on the parts that were not compared, with the reasons."""
    drift: Drift | None = field(default=None, compare=False, repr=False)
    """Differences over time for the picture. None if no layer was compared."""

    @property
    def one_failed(self) -> bool:
        """True if an error or a halt ended one run and not the other, also where all steps before it are the same."""
        ends = [{end.partition(":")[0] for end in (c.one, c.other)} for c in self.health if c.what == "outcome"]
        return any(len(kinds) > 1 and bool(kinds & {"raised", "halted"}) for kinds in ends)

    def __str__(self) -> str:
        changes = [f"{s.name}: {s.one} -> {s.other} (from step {s.step})" for s in self.settings]
        return "\n".join([f"{self.verdict.upper()}: {self.summary}", *changes])

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as strict JSON values (schema ``neuraldbg.comparison/1``), without ``drift``.

        >>> run.compare(run).to_dict()["verdict"]
        'identical'
        """
        body: Mapping[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "drift"}
        plain = jsonable(body)
        assert isinstance(plain, dict)
        return {"schema": COMPARISON_SCHEMA, **plain}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the comparison as strict JSON text; a NaN is the string "NaN". None for ``indent`` gives one line.

        >>> print(run.compare(run).to_json(indent=None)[:37])
        {"schema": "neuraldbg.comparison/1",
        """
        return json.JSONEncoder(indent=indent, allow_nan=False).encode(self.to_dict())
