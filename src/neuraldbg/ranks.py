"""The place of this process among those that train one model together, as torchrun and others tell it.

Imports nothing but the standard library: ``neuraldbg run`` asks before the program has imported anything.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 10**6
"""Ranks beyond this are no ranks: the variable belongs to somebody else."""


@dataclass(frozen=True)
class Rank:
    """One process of several, by the environment variables that torchrun sets."""

    rank: int = 0
    world: int = 1
    """Processes in all; 1 if that is not known."""

    @property
    def secondary(self) -> bool:
        """True if rank 0 speaks for all: the diagnosis is printed once, not once a rank."""
        return self.rank > 0 and self.world > 1


def own_rank(environment: Mapping[str, str] = os.environ) -> Rank:
    """Read RANK and WORLD_SIZE; rank 0 of 1 where they are not set, or are no numbers."""
    rank, world = _number(environment.get("RANK")), _number(environment.get("WORLD_SIZE"))
    return Rank(rank or 0, world or 1)


def launched_at(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the Unix time at which the launcher of all ranks started, None if there is none, or it is not known.

    The ranks of one machine have one parent: what they derive from its start is the same in all of them.
    """
    if "RANK" not in environment or _number(environment.get("WORLD_SIZE")) in (None, 1):
        return None
    try:  # Linux alone tells it in a file; see proc(5)
        with open(f"/proc/{os.getppid()}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123 (no pathlib yet)
            ticks = int(stat.read().rpartition(")")[2].split()[19])
        with open("/proc/stat", encoding="utf-8") as stat:  # noqa: PTH123
            booted = next(int(line.split()[1]) for line in stat if line.startswith("btime "))
        return booted + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and int(text) <= _MOST else None
