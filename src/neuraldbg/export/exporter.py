"""The contract of an exporter: what enters is a run, its diagnosis and a selection; what leaves is a file, or a folder.

A member is one file of this folder with an ``EXPORTER``, registered by one line in ``__init__.py``. It writes to the
path that it is given and looks at no other: that path is a temporary one, and whether it takes its place is not the
member's to decide (``atomic_write.py``). What holds for all formats:

- A row of time that stands for several steps carries their number, and low, mean and high, under names of their own.
- Sites that were not read in a step leave nothing. Steps count from 0.
- NaN and infinity are written as the format's readers expect them, never as a zero or a gap.
- Names of layers come from the user's program: they may hold anything, and never become part of a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from neuraldbg.errors import ConfigError
from neuraldbg.layer_alias import resolve
from neuraldbg.nouns import STATS

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.nouns import Diagnosis, RunRecord


@dataclass(frozen=True)
class Selection:
    """Which of the sites' numbers are written; everything where nothing is named."""

    layers: tuple[str, ...] = ()
    """Paths or aliases, as ``layer_alias.resolve`` takes them; a layer brings those inside it."""
    stats: tuple[str, ...] = ()
    """Of STATS."""

    def rows(self, run: RunRecord) -> tuple[int, ...]:
        """Rows of the table that are meant. UnknownLayer for a layer that the run does not have."""
        paths = tuple(resolve(run.layout, layer) for layer in self.layers)
        inside = tuple(f"{path}." for path in paths)
        return tuple(
            row
            for row, site in enumerate(run.layout.sites)
            if not self.layers or "" in paths or site.module in paths or site.module.startswith(inside)
        )

    def columns(self, usual: tuple[str, ...] = STATS) -> tuple[str, ...]:
        """Return the statistics that are meant. ConfigError for one that does not exist."""
        for stat in self.stats:
            if stat not in STATS:
                raise ConfigError(f"there is no statistic {stat!r}: {', '.join(STATS)} are")
        return tuple(stat for stat in STATS if stat in (self.stats or usual))


class Write(Protocol):
    """What a member does. MissingExtra where a package is not installed, OSError where the disk does not take it."""

    def __call__(self, run: RunRecord, diagnosis: Diagnosis, selection: Selection, path: Path) -> None: ...


@dataclass(frozen=True)
class Exporter:
    """A format."""

    name: str
    """As ``neuraldbg export --format`` takes it."""
    target: str
    """What the file or folder is called where nobody says."""
    write: Write
    selects: bool = False
    """Whether a selection changes what is written; a format that holds the whole run refuses one."""
    files: tuple[str, ...] = ()
    """Patterns of the names in the folder that it writes; none where it writes a single file."""
