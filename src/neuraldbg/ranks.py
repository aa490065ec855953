"""The rank of this process among those that train one model together, from the environment variables of torchrun.

It imports only the standard library: ``neuraldbg run`` calls it before the program has imported anything.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 10**6
"""Largest number that is accepted as a rank: a larger one means that the variable has another purpose."""


@dataclass(frozen=True)
class Rank:
    """The rank of a process, and the number of processes."""

    rank: int = 0
    world: int = 1
    """Number of processes; 1 if it is not known."""

    @property
    def secondary(self) -> bool:
        """True for all ranks but 0, which alone prints the diagnosis."""
        return self.rank > 0 and self.world > 1


def own_rank(environment: Mapping[str, str] = os.environ) -> Rank:
    """Read RANK and WORLD_SIZE. Return rank 0 of 1 if they are not set, or are no numbers."""
    rank, world = _number(environment.get("RANK")), _number(environment.get("WORLD_SIZE"))
    return Rank(rank or 0, world or 1)


def launched_at(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the Unix time at which the launcher of all ranks started; None if there is none, or it is not known.

    The ranks of one machine have one parent, so they all get the same time.
    """
    if "RANK" not in environment or _number(environment.get("WORLD_SIZE")) in (None, 1):
        return None
    try:  # only Linux has these files; see proc(5)
        with open(f"/proc/{os.getppid()}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123 (no pathlib yet)
            ticks = int(stat.read().rpartition(")")[2].split()[19])
        with open("/proc/stat", encoding="utf-8") as stat:  # noqa: PTH123
            booted = next(int(line.split()[1]) for line in stat if line.startswith("btime "))
        return booted + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and int(text) <= _MOST else None
