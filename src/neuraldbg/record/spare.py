"""Descriptors that a session keeps for its end.

A program that has used up what it may open has failed by that, and what explains it opens files of its own: modules,
texts, the run file's folder.
"""

from __future__ import annotations

import os

from neuraldbg.raised import let_pass, swallowing
from neuraldbg.record.run_file import low_numbers_taken

_COUNT = 4
"""How many are open at once at the end, and one to spare."""


class Spare:
    """Open descriptors of a file that has no name; none where the system cannot make one, or has no more."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._made: tuple[int, int] | None = None
        if not hasattr(os, "memfd_create"):  # not on every system
            return
        with swallowing("keeping descriptors for the end"), low_numbers_taken():
            self._numbers.append(os.memfd_create("neuraldbg"))
            stat = os.fstat(self._numbers[0])
            self._made = (stat.st_dev, stat.st_ino)
            for _ in range(_COUNT - 1):
                self._numbers.append(os.dup(self._numbers[0]))

    def release(self) -> None:
        """Close those that are still ours: the program may have closed them, and have files of its own there."""
        numbers, self._numbers = self._numbers, []
        for number in numbers:
            try:
                stat = os.fstat(number)
            except OSError as error:
                let_pass(error)
                continue
            if (stat.st_dev, stat.st_ino) == self._made:
                os.close(number)
