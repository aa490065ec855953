"""The contract of a detector: one step after the other in, events out.

A detector is one file with one class and its thresholds, registered by one line in ``detect/__init__.py``. It is
streaming (constant memory), vectorised over sites, and judges only its own symptom: causes are left to the explain
stage. Its module docstring is its help page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.config import Thresholds
    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layout, Step


class Detector(Protocol):
    """The interface of a detector, which watches for one family of symptoms."""

    name: ClassVar[str]
    """Name of the detector in settings."""
    needs: ClassVar[frozenset[str]]
    """Kinds of sites that the detector reads."""

    light: ClassVar[bool]
    """True if the detector also takes light steps, which have scalars only. Others never get one."""

    @property
    def thresholds(self) -> Thresholds:
        """Settings of the detector, the only argument of its constructor; the defaults if it was None."""
        ...

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step, in order, and return the events that began or grew with it.

        ``layout.sites[i]`` is row i of ``step.table``; later layouts have more sites, never fewer, and the first ones
        keep their rows. An event that lasts is returned again with a later ``last_step``, which replaces the earlier
        version (``Event.key``), though not at every step.

        A detector without ``light`` gets full steps only, with gaps of any length between them: it counts steps that
        were read, or all steps by means of `Readings.missed`.
        """
        ...

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last, each with the last step at which it was observed."""
        ...


class Passing(Detector, Protocol):
    """The interface of a detector that can judge many full steps at once; `Watch` uses it where it can."""

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over leading steps of ``block.steps[first:]``, which come next. Return their number.

        These are steps for which `observe` would return no event; afterwards the state of the detector is bitwise the
        same as if it had observed them. 0 if the next step must be observed.
        """
        ...
