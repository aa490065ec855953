"""The names of run files in their folder, and the run file that a path refers to.

A folder holds one file per rank and run: ``rank0.ndbg``, and ``rank0-2.ndbg`` of the second run that was saved there.
No file is ever renamed for a later run: its writer may still be running. A folder refers to its newest run, of the
lowest rank that it has.
"""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.errors import RunNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME = re.compile(r"rank(\d+)(?:-(\d+))?\.ndbg", re.ASCII)
_COMPANIONS = ("", "-wal", "-shm", "-journal")
_LISTED = 4


@dataclass(frozen=True, order=True)
class RunName:
    """The rank and the number of the run within its folder, as the name of a run file holds them."""

    rank: int = 0
    number: int = 1

    @classmethod
    def of(cls, file: Path) -> RunName | None:
        """Parse a file's name. Return None for one that is no name of a run file."""
        match = _NAME.fullmatch(file.name)
        return cls(int(match[1]), int(match[2] or 1)) if match else None

    def __str__(self) -> str:
        return f"rank{self.rank}{self._number}.ndbg"

    @property
    def first(self) -> bool:
        """True for rank 0 of the first run of its folder."""
        return self == RunName()

    def beside(self, stem: str, end: str = "json") -> str:
        """Return the name of a file that belongs to the run file: ``diagnosis.json``, ``diagnosis-rank1.json``."""
        return f"{stem}{f'-rank{self.rank}' if self.rank else ''}{self._number}.{end}"

    @property
    def _number(self) -> str:
        return f"-{self.number}" if self.number > 1 else ""


def free_names(folder: Path, rank: int) -> Iterator[Path]:
    """Yield names for a new run file that are free: neither the file nor a log of that name exists."""
    for number in itertools.count(1):
        path = folder / str(RunName(rank, number))
        # SQLite would take the log of a deleted file for that of the new one.
        if not any(path.with_name(f"{path.name}{end}").exists() for end in _COMPANIONS) and not path.is_symlink():
            yield path


def run_files(folder: Path) -> dict[RunName, Path]:
    """Return the run files of a run folder in order of rank and run; {} if it is no run folder."""
    found = {name: file for file in folder.iterdir() if (name := RunName.of(file)) is not None}
    return dict(sorted(found.items()))


def rank_files(folder: Path) -> dict[int, Path]:
    """Return the newest run file of each rank of a run folder; {} if it is no run folder."""
    return {name.rank: file for name, file in run_files(folder).items()}


def run_folders(path: Path) -> list[Path]:
    """Return the run folders of a path: the folder itself, or else those one or two levels below."""
    if rank_files(path):
        return [path]
    found = {file.parent for pattern in ("*/rank*.ndbg", "*/*/rank*.ndbg") for file in path.glob(pattern)
             if RunName.of(file) is not None}  # fmt: skip
    return sorted(found)


def find_run(path: Path, rank: int | None = None) -> Path:
    """Return the run file that a path refers to: of a folder the newest run of ``rank``, or of its lowest rank.

    Raises RunNotFound, whose message says what there is instead.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise RunNotFound(f"there is no run at {path}: no such file or folder.")
    own = {number: file for number, file in rank_files(path).items() if file.is_file()}
    if own:
        if rank is not None and rank not in own:
            raise RunNotFound(f"{path} holds no rank {rank}; it has rank {', '.join(map(str, own))}.")
        return own[min(own) if rank is None else rank]
    runs = [file for folder in run_folders(path) if (file := _of(folder, rank)) is not None]
    runs.sort(key=_age)
    if len(runs) == 1:
        return runs[0]
    if not runs:
        name = RunName(rank or 0)
        raise RunNotFound(f"there is no run in {path}: neither it nor a folder below holds a {name}.")
    listed = "\n".join(f"  {run.parent}" for run in runs[:10])
    more = f"\n  and {len(runs) - 10} more" if len(runs) > 10 else ""
    raise RunNotFound(f"{path} holds {len(runs)} runs: name one of them, newest first:\n{listed}{more}")


def others(path: Path, file: Path) -> str:
    """Return a sentence on the other run files of a folder, and on how to name them; "" if there are none."""
    name = RunName.of(file)
    if path.is_file() or name is None:
        return ""
    found = [each for own, each in run_files(file.parent).items() if own != name and each.is_file()]
    if not found:
        return ""
    names = ", ".join(each.name for each in found[:_LISTED])
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return (
        f"This is {file.name}; the folder also holds {names}{more}. "
        f"Name a file for another one: {shlex.quote(str(found[0]))}"
    )


def _of(folder: Path, rank: int | None) -> Path | None:
    files = {number: file for number, file in rank_files(folder).items() if file.is_file()}
    if rank is not None:
        return files.get(rank)
    return files[min(files)] if files else None


def _age(run: Path) -> float:
    # Steps are written to the log first, so its time may be the newer one.
    return -max(file.stat().st_mtime for file in (run, run.with_name(f"{run.name}-wal")) if file.exists())
