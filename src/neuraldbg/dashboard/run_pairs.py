"""Two runs that the dashboard's page compares: their moments in, the last comparison kept."""

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
    """A comparison of two runs that is repeated while the runs grow and the page requests it."""

    keys: tuple[str, str]
    comparison: Comparison | None = None
    """Last comparison. None before the first."""
    ready: threading.Event = field(default_factory=threading.Event)
    """Set once the runs were compared, or a request has waited long enough."""
    due: float = 0.0
    """Monotonic time before which the runs are not compared again."""
    versions: tuple[int, int] = (0, 0)
    """Versions of the moments that were compared."""
    wanted: bool = False
    """True if the page has requested the comparison since the last one was made."""

    def refuse(self, entries: list[Entry]) -> None:
        """Set a comparison that names a run which cannot be read, unless there is one already."""
        for entry in entries:
            if entry.problem and self.comparison is None:
                names = entries[0].label, entries[1].label
                self.comparison = Comparison("incomparable", f"{entry.label} cannot be read: {entry.problem}", names)

    def make(self, one: Moment, other: Moment, names: tuple[str, str]) -> None:
        """Compare two moments."""
        self.wanted = False
        try:
            found = compare(one.record, other.record, (one.diagnosis, other.diagnosis), names=names)
        except Exception as error:  # noqa: BLE001 (of strange records; the other pairs must still be compared)
            why = f"The runs could not be compared ({type(error).__name__}: {error})"
            found = Comparison("incomparable", why, names)
        self.comparison, self.versions = found, (one.version, other.version)
        self.ready.set()
