"""The contract of a kind of bottleneck: what was measured goes in, bottlenecks with a remedy come out.

A kind is one file with a function of the type ``Finder``, registered by one line in ``profile/__init__.py``. It judges
only its own kind, from facts, and says the number first: "37% of the step, 9 ms, waits for the data loader".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from neuraldbg.nouns.facts.footprint import FootprintFact
from neuraldbg.nouns.facts.growth import GrowthFact
from neuraldbg.nouns.facts.optimizer import OptimizerFact
from neuraldbg.nouns.facts.timing import TimingFact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.profile import Bottleneck


@dataclass(frozen=True)
class Measured:
    """The measured values of a run that finders look at."""

    run: RunRecord
    timing: TimingFact | None
    footprint: FootprintFact | None
    growth: GrowthFact | None
    optimizers: tuple[OptimizerFact, ...]
    """The optimizers of the run, as they were last."""

    @property
    def on_device(self) -> bool:
        """True if the layers were timed on a CUDA device."""
        return self.timing is not None and self.timing.clock == "cuda"

    def share(self, seconds: float | None) -> float:
        """Return the share of the step that so many seconds are, 0 if nothing was timed."""
        if self.timing is None or seconds is None or self.timing.step_s <= 0:
            return 0.0
        return seconds / self.timing.step_s


class Finder(Protocol):
    """Finds bottlenecks of one kind."""

    def __call__(self, measured: Measured, /) -> Iterable[Bottleneck]:
        """Return the bottlenecks, none if this kind costs little or was not measured."""
        ...


def measured_of(run: RunRecord) -> Measured:
    """Return what the newest facts of a run say. A fact that this version cannot read counts as absent."""
    newest = {fact.key: fact for fact in run.facts}
    optimizers = {fact.value.get("stream"): fact for fact in run.facts if fact.key == OptimizerFact.KEY}

    def of(key: str) -> object:
        return newest[key].known if key in newest else None

    timing, footprint, growth = of(TimingFact.KEY), of(FootprintFact.KEY), of(GrowthFact.KEY)
    return Measured(
        run,
        timing if isinstance(timing, TimingFact) else None,
        footprint if isinstance(footprint, FootprintFact) else None,
        growth if isinstance(growth, GrowthFact) else None,
        tuple(fact.known for fact in optimizers.values()),
    )
