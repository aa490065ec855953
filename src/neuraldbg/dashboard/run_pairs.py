"""Two runs that the dashboard's page asked to compare: their moments enter, what was found last is kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neuraldbg.compare import compare
from neuraldbg.nouns.comparison import Comparison

if TYPE_CHECKING:
    from neuraldbg.dashboard.feed import Entry, Moment


@dataclass
class Pair:
    """A comparison that is made anew while its runs grow and somebody looks."""

    keys: tuple[str, str]
    comparison: Comparison | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    """Set once they were compared for the first time, or somebody has waited long enough."""
    due: float = 0.0
    """Monotonic time before which they are not compared again."""
    versions: tuple[int, int] = (0, 0)
    """Of the moments that were compared."""
    wanted: bool = False
    """Whether the page asked since then: what nobody looks at is not compared anew."""

    def refuse(self, entries: list[Entry]) -> None:
        """Say which run cannot be read, if one cannot; what was compared before stays."""
        for entry in entries:
            if entry.problem and self.comparison is None:
                names = entries[0].label, entries[1].label
                self.comparison = Comparison("incomparable", f"{entry.label} cannot be read: {entry.problem}", names)

    def make(self, one: Moment, other: Moment, names: tuple[str, str]) -> None:
        """Compare the runs as they were read."""
        self.wanted = False
        try:
            found = compare(one.record, other.record, (one.diagnosis, other.diagnosis), names=names)
        except Exception as error:  # noqa: BLE001 (of strange records; the other pairs are still to be compared)
            why = f"The runs could not be compared ({type(error).__name__}: {error})"
            found = Comparison("incomparable", why, names)
        self.comparison, self.versions = found, (one.version, other.version)
        self.ready.set()
