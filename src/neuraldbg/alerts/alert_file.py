"""Alerts as lines of a file: an Alert in, one line of JSON appended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from neuraldbg.alerts.sink import NotDelivered

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.nouns.alert import Alert


class AlertFile:
    """Appends each alert to a file, opened for each of them: another program may rename it or empty it meanwhile."""

    busy = False

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """The sink as a sentence names it."""
        return f"the file {self._path}"

    def put(self, alert: Alert) -> None:
        """Append an alert by one write, so that a process that is killed leaves whole lines."""
        line = alert.to_json().encode() + b"\n"
        try:
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
            try:
                # A line that another process, or a full disk, has left in half ends here.
                size = os.fstat(file).st_size
                torn = size > 0 and os.pread(file, 1, size - 1) != b"\n" if hasattr(os, "pread") else False
                line = b"\n" * torn + line
                written = os.write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            raise NotDelivered(error.strerror or str(error)) from None
        if written < len(line):
            raise NotDelivered("no space is left for a whole line")

    def turn(self, left_s: float | None) -> None:
        """Do nothing: an alert is written at once."""

    def abandon(self) -> None:
        """Do nothing: no alert is ever begun and not written."""
