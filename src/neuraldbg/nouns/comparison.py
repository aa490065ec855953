"""What the compare stage says of two runs: where they part first, by how much, and what else is different.

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
"""The verdicts. ``identical``: no statistic that was compared differs in any bit. ``close``: all within the tolerance.
``diverged``: some are not. ``incomparable``: no site was read in both runs at the same steps, so nothing is claimed."""


@dataclass(frozen=True)
class Tolerance:
    """Two values agree if they differ by at most ``atol + rtol * size``, the size being that of the whole tensor."""

    rtol: float
    atol: float
    source: str
    """Where ``rtol`` comes from: the dtype whose default it is, or that it was given."""


@dataclass(frozen=True)
class Difference:
    """The first place, in the order of time and of data flow, at which two runs do not agree."""

    step: int
    last: int
    """The last step of the row of the record; more than ``step`` where older steps were thinned."""
    since: int | None
    """The last step before it that was compared and agreed, None if there is none: it began after that."""
    kind: str
    """One of KINDS, or a scalar: ``loss``, ``grad_norm``."""
    layer: str | None
    site: str
    """Label of the site: ``fc1.weight``, ``conv2``, ``loss``."""
    stat: str
    """The statistic that differs most."""
    one: float
    other: float
    """Its values in the two runs."""
    relative: float
    """The largest difference of any of its statistics, relative to the size of the tensor; infinite where only one run
    has NaN or infinite values."""
    absolute: float
    reading: str
    """What it means that this is the first place, one sentence."""
    also: int = 0
    """How many other sites differ in the same step."""
    other_layer: str | None = None
    """The layer's path in the other run, where it has another."""


@dataclass(frozen=True)
class Trend:
    """What becomes of a difference in the steps after it began."""

    course: str
    """``grows``, ``stays``, ``shrinks``, or ``unknown`` with fewer than four steps to judge by."""
    factor: float
    """By which it changes a step: exp of the Theil-Sen slope (Sen 1968) of the logarithm of the relative difference."""
    first: int
    last: int
    """The steps that were looked at."""
    begin: float
    end: float
    """The relative difference at both ends: medians of the first and the last few steps at which it is a number, and
    infinite where it is none at any of them."""
    readings: int
    broke: int | None = None
    """The step within them at which one run becomes NaN or infinite and the other does not, None if none does. What
    was a number before has then grown beyond any number: ``course`` is ``grows``."""
    broken: int | None = None
    """Which run that is: 0 or 1, as in ``names``."""


@dataclass(frozen=True)
class KindSpan:
    """How one kind of sites compares over the whole run."""

    kind: str
    sites: int
    differing: int
    """Sites beyond the tolerance at some step."""
    first: int | None
    """The first step at which one is, None if none ever is."""
    largest: float
    """The largest relative difference of any site at any step."""


@dataclass(frozen=True)
class LayerSpan:
    """How one layer compares over the whole run."""

    layer: str
    first: int | None
    """The first step at which one of its sites is beyond the tolerance."""
    largest: float
    last: float
    """The largest relative difference over its sites at the last step compared."""


@dataclass(frozen=True)
class LayerPair:
    """A layer that has another path in the other run, or another type at the same path."""

    one: str
    other: str
    how: str
    """``structure``: by type, settings, parameters and neighbours. ``type``: same place, another type."""
    types: tuple[str, str]


@dataclass(frozen=True)
class Setting:
    """Something about the programs that is not the same."""

    name: str
    one: Any
    other: Any
    step: int
    """The first step at which it showed."""
    layer: str | None = None


@dataclass(frozen=True)
class LossPair:
    """The losses of both over the steps that both have."""

    stream: int
    final: tuple[float, float]
    """The last finite value of each."""
    best: tuple[float, float]
    mean: tuple[float, float]
    """The area under each curve, a step."""
    parts: int | None
    """The first step at which they differ by more than the tolerance."""
    apart: int | None
    """The first step from which on they always differ by more than a tenth, None if they do not at the end."""


@dataclass(frozen=True)
class HealthChange:
    """Something about a layer's health, or the run's, that is not the same."""

    what: str
    """``outcome``, ``verdict``, ``cause``, ``event``, ``dead units``, ``gradient norm``."""
    layer: str | None
    one: str
    other: str
    step: int | None = None


@dataclass(frozen=True)
class Compared:
    """What the comparison rests on."""

    steps: tuple[int, int]
    """Steps of each run."""
    read: int
    """Steps whose layers were read in both and compared, thinned ones included."""
    span: tuple[int, int] | None
    """The first and the last of them."""
    scalars: int
    """Steps whose loss was compared."""
    sites: int
    """Sites that were compared."""
    only: tuple[int, int]
    """Sites that only the one run, or only the other, has."""
    share: float
    """Elements read of all elements of the sites compared: large tensors are read by samples."""


@dataclass(frozen=True)
class Drift:
    """The largest relative difference of each layer over time, for the picture."""

    layers: tuple[str, ...]
    """R paths in data-flow order; "(input)" are the inputs."""
    steps: npt.NDArray[np.int64]
    width: npt.NDArray[np.int64]
    """Shape (C,) each: first step of a column, and the steps that it stands for."""
    values: npt.NDArray[np.float32]
    """Shape (R, C): 0 where nothing differs, NaN where nothing was compared, infinite where only one run has NaN."""


@dataclass(frozen=True)
class Comparison:
    """The answer. ``to_dict()`` is the JSON of ``neuraldbg compare --json``."""

    verdict: str
    """One of COMPARISONS."""
    summary: str
    names: tuple[str, str] = ("A", "B")
    """What to call the runs."""
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(0.0, 0.0, ""))
    first: Difference | None = None
    """The first difference beyond the tolerance: the divergence."""
    earliest: Difference | None = None
    """The first difference of any size, where it is earlier than ``first``: that of rounding."""
    trend: Trend | None = None
    """Of the site of the first divergence."""
    overall: Trend | None = None
    """Of the median over all layers."""
    kinds: tuple[KindSpan, ...] = ()
    layers: tuple[LayerSpan, ...] = ()
    """In data-flow order."""
    settings: tuple[Setting, ...] = ()
    """What is likely to matter most first."""
    paired: tuple[LayerPair, ...] = ()
    only: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Layers of the one that the other lacks, and the reverse."""
    losses: tuple[LossPair, ...] = ()
    verdicts: tuple[str, str] = ("", "")
    """Of the diagnoses of both, "" where none were given."""
    health: tuple[HealthChange, ...] = ()
    compared: Compared = field(default_factory=lambda: Compared((0, 0), 0, None, 0, 0, (0, 0), 0.0))
    notes: tuple[str, ...] = ()
    """What was not compared, and why, a sentence each."""
    drift: Drift | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        changes = [f"{s.name}: {s.one} -> {s.other} (from step {s.step})" for s in self.settings]
        return "\n".join([f"{self.verdict.upper()}: {self.summary}", *changes])

    def to_dict(self) -> dict[str, Any]:
        """Return it as strict JSON values (schema ``neuraldbg.comparison/1``), without the map of the picture."""
        body: Mapping[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "drift"}
        plain = jsonable(body)
        assert isinstance(plain, dict)
        return {"schema": COMPARISON_SCHEMA, **plain}

    def to_json(self, indent: int | None = 2) -> str:
        """Return it as JSON text that any parser takes."""
        return json.JSONEncoder(indent=indent, allow_nan=False).encode(self.to_dict())
