"""The contract between the page and what reads runs: the page asks a Feed, and never opens a file.

Whoever starts the dashboard hands it a Feed: reading is the record stage's, explaining the explain stage's, and this
stage knows neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.nouns.comparison import Comparison


@dataclass(frozen=True)
class Entry:
    """A run that can be looked at."""

    key: str
    """What the address of the page names it by. Known keys are looked up, never opened as a path."""
    label: str
    """For people: the run folder's name, and the rank where there are several."""
    steps: int
    state: str
    """How the program ended, as Outcome.kind; ``running`` while it writes; ``unreadable`` with ``problem``."""
    verdict: str = ""
    """As it was last judged, "" while it was not."""
    started: float = 0.0
    """Unix time."""
    script: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Moment:
    """A run as far as it has been read."""

    record: RunRecord
    diagnosis: Diagnosis
    version: int
    """Grows whenever record or diagnosis changed: what was drawn from the same version is still right."""
    judged: int
    """Steps that the diagnosis knows of: it is made anew less often than steps are read."""


class Feed(Protocol):
    """Runs that may still grow. Every call returns at once with what was last read; reading goes on in a thread."""

    def runs(self) -> tuple[Entry, ...]:
        """Return the runs, newest first."""
        ...

    def moment(self, key: str) -> Moment:
        """Return a run as it was last read. KeyError for a key that ``runs`` does not name."""
        ...

    def compare(self, key: str, other: str) -> Comparison | None:
        """Return how two runs compared last, None before they were; the same object while nothing changed.

        Of runs that cannot be compared it says why. KeyError for a key that ``runs`` does not name.
        """
        ...
