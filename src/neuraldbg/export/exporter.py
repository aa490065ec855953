"""The contract of an exporter: a run, its diagnosis and a selection enter; a file or a folder leaves.

A member is one file of this folder with an ``EXPORTER``, registered by one line in ``__init__.py``. It writes to the
given path and uses no other: that path is temporary, and ``atomic_write.py`` renames it to the target. Rules for all
formats:

- A row of time for several steps has their number, and low, mean and high, under separate names.
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
    """The selection of layers and statistics to write; everything if nothing is named."""

    layers: tuple[str, ...] = ()
    """Paths or aliases, as ``layer_alias.resolve`` takes them; a layer includes those inside it."""
    stats: tuple[str, ...] = ()
    """Names of statistics, of STATS."""

    def rows(self, run: RunRecord) -> tuple[int, ...]:
        """Return the selected rows of the table. A layer that the run does not have raises UnknownLayer."""
        paths = tuple(resolve(run.layout, layer) for layer in self.layers)
        inside = tuple(f"{path}." for path in paths)
        return tuple(
            row
            for row, site in enumerate(run.layout.sites)
            if not self.layers or "" in paths or site.module in paths or site.module.startswith(inside)
        )

    def columns(self, usual: tuple[str, ...] = STATS) -> tuple[str, ...]:
        """Return the selected statistics. An unknown one raises ConfigError."""
        for stat in self.stats:
            if stat not in STATS:
                raise ConfigError(f"there is no statistic {stat!r}: choose one of {', '.join(STATS)}")
        return tuple(stat for stat in STATS if stat in (self.stats or usual))


class Write(Protocol):
    """Function of a member that writes a run; it raises MissingExtra without its package, OSError if a write fails."""

    def __call__(self, run: RunRecord, diagnosis: Diagnosis, selection: Selection, path: Path) -> None: ...


@dataclass(frozen=True)
class Exporter:
    """One export format: its name, its default target and its writer."""

    name: str
    """Name of the format for ``neuraldbg export --format``."""
    target: str
    """Default name of the file or folder."""
    write: Write
    selects: bool = False
    """True if a selection changes the export; a format of the whole run refuses a selection."""
    files: tuple[str, ...] = ()
    """Patterns of the names in the written folder; empty if the format writes a single file."""
