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
    local_rank: int = 0
    """Rank among the processes of this machine."""
    local_world: int = 1
    """Number of processes of this machine; 1 if it is not known."""
    job: str = ""
    """Name of the job, equal on all ranks and restarts; "" if the launcher gives none."""
    restart: int = 0
    """Number of times that the launcher has started the workers again."""

    @property
    def secondary(self) -> bool:
        """True for all ranks but 0, which alone prints the diagnosis."""
        return self.rank > 0 and self.world > 1

    @property
    def silent(self) -> bool:
        """True if rank 0 on the same machine speaks for this process."""
        return self.secondary and (self.local_rank > 0 or self.local_world == self.world)

    def told(self) -> dict[str, int | str]:
        """Return the place in the job as in ``RunInfo.job``: {} for a single process."""
        if self.world < 2:
            return {}
        return {
            "rank": self.rank,
            "world": self.world,
            "local_rank": self.local_rank,
            "local_world": self.local_world,
            "id": self.job,
            "restart": self.restart,
        }


_told: list[Rank] = []


def take_place(rank: Rank) -> None:
    """Note the place of a process that no launcher has started: its environment is the program's to set."""
    _told.append(rank)


def own_rank(environment: Mapping[str, str] = os.environ) -> Rank:
    """Return what ``take_place`` was told, else RANK, WORLD_SIZE and the like, as torchrun sets them. Without them, or
    if they are no numbers, it is rank 0 of 1.
    """
    if _told:
        return _told[-1]

    def read(name: str) -> int | None:
        return _number(environment.get(name))

    job = environment.get("TORCHELASTIC_RUN_ID", "")
    return Rank(
        read("RANK") or 0,
        read("WORLD_SIZE") or 1,
        read("LOCAL_RANK") or 0,
        read("LOCAL_WORLD_SIZE") or 1,
        "" if job == "none" else job,
        read("TORCHELASTIC_RESTART_COUNT") or 0,
    )


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
