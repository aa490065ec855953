"""The contract of a detector: what enters is one step after the other, what leaves are events.

A detector is one file with one class and its thresholds, registered by one line in ``detect/__init__.py``. It is
streaming (constant memory), vectorised over sites, and judges nothing beyond its own symptom: why it happened is the
explain stage's business. Its module docstring is its help page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.config import Thresholds
    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layout, Step


class Detector(Protocol):
    """Watches for one family of symptoms."""

    name: ClassVar[str]
    """The name that settings use for it."""
    needs: ClassVar[frozenset[str]]
    """Kinds of sites it reads."""

    light: ClassVar[bool]
    """Whether it takes light steps as well, of which only scalars are there. Others never see one."""

    @property
    def thresholds(self) -> Thresholds:
        """Its settings, the only argument of its constructor; defaults when there is none."""
        ...

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Take one step, in order, and give the events that began or grew with it.

        ``layout.sites[i]`` is row i of ``step.table``; later layouts have more sites, never fewer, and the first ones
        keep their rows. Give an event that lasts again with a later ``last_step``: it replaces the earlier one
        (``Event.key``). An event that lasts need not be given at each step.

        A detector without ``light`` sees the full steps only, with gaps of any length between them: what it counts are
        steps that were read, or steps that went by where it asks `Readings.missed`.
        """
        ...

    def ongoing(self) -> Iterable[Event]:
        """The events that still last, each with the last step at which it was seen."""
        ...


class Passing(Detector, Protocol):
    """A detector that can look at many full steps at once; `Watch` asks it to wherever it can."""

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading ones of ``block.steps[first:]``, which come next, and say how many.

        These are steps of which `observe` would give no event. All that it would have learnt of them has been learnt,
        to the bit. 0 where a step must be observed to be sure.
        """
        ...
