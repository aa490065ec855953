"""The contract between the page and the reader of runs: the page calls a Feed, and never opens a file.

The caller that starts the dashboard passes a Feed: the page depends neither on the record stage, which reads, nor on
the explain stage, which diagnoses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord, Series
    from neuraldbg.nouns.comparison import Comparison


@dataclass(frozen=True)
class Entry:
    """A run that the page can show, as one row of the list of runs."""

    key: str
    """Name in the page's address. It is looked up among known keys, never opened as a path."""
    label: str
    """Name for display: that of the run folder, with the rank if there are several."""
    steps: int
    """Number of steps."""
    state: str
    """``Outcome.kind``; ``running`` while the run is written, ``killed`` or ``unreadable``, with ``problem``."""
    verdict: str = ""
    """Verdict of the last diagnosis; "" before the first."""
    cause: str = ""
    """Id of the first cause in the last diagnosis; "" if there is none."""
    confidence: float = 0.0
    """Probability of that cause."""
    losses: tuple[float, ...] = ()
    """Level of the loss at the end, one for each optimizer that stepped; () if no loss was seen."""
    duration_s: float = 0.0
    """Seconds from the start of the run to its last step."""
    started: float = 0.0
    """Start of the run, Unix time."""
    script: str = ""
    problem: str = ""
    """Sentence that says why the run cannot be read; "" if it can."""
    curves: tuple[tuple[str, Series], ...] = field(default=(), repr=False, compare=False)
    """Each loss over steps, shortened, with its name."""


@dataclass(frozen=True)
class Moment:
    """A run as far as it has been read, with its newest diagnosis."""

    record: RunRecord
    diagnosis: Diagnosis
    version: int
    """Counter that grows when record or diagnosis changes: pictures of the same version are still valid."""
    judged: int
    """Number of steps in the diagnosis, which is made less often than steps are read."""


class Feed(Protocol):
    """The interface of a reader of runs that may still grow. Every call returns the last result; a thread reads on."""

    def runs(self) -> tuple[Entry, ...]:
        """Return the runs, newest first."""
        ...

    def moment(self, key: str) -> Moment:
        """Return a run as it was last read. Raises KeyError for a key that is not in ``runs``."""
        ...

    def compare(self, key: str, other: str) -> Comparison | None:
        """Return the last comparison of two runs, None before the first; the same object while nothing has changed.

        For runs that cannot be compared, the comparison contains the reason. Raises KeyError for a key that is not in
        ``runs``.
        """
        ...
