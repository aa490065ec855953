"""Descriptors that a session reserves for its end.

A program that has used up its descriptors fails because of that, and the diagnosis has to open files of its own:
modules, texts, the run file's folder.
"""

from __future__ import annotations

import os

from neuraldbg.raised import let_pass, swallowing
from neuraldbg.record.run_file import low_numbers_taken

_COUNT = 4
"""Descriptors that are open at once at the end, and one more."""


class Spare:
    """Reserves descriptors of a file without a name; none if the system has no ``memfd_create`` or no more of them."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._made: tuple[int, int] | None = None
        if not hasattr(os, "memfd_create"):
            return
        with swallowing("keeping descriptors for the end"), low_numbers_taken():
            self._numbers.append(os.memfd_create("neuraldbg"))
            stat = os.fstat(self._numbers[0])
            self._made = (stat.st_dev, stat.st_ino)
            for _ in range(_COUNT - 1):
                self._numbers.append(os.dup(self._numbers[0]))

    def release(self) -> None:
        """Close the reserved descriptors, except numbers that the program has closed and may use itself."""
        numbers, self._numbers = self._numbers, []
        for number in numbers:
            try:
                stat = os.fstat(number)
            except OSError as error:
                let_pass(error)
                continue
            if (stat.st_dev, stat.st_ino) == self._made:
                os.close(number)
