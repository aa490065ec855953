"""The status line on a terminal while a program runs, which never mixes with the program's output.

The line is drawn on standard error only while the program's own cursor is at the start of a line, and is erased before
the program writes; a dumb terminal, which cannot erase, has none. For this, ``write`` of the program's two streams is
wrapped on the instances: text is passed on unchanged. A stream is wrapped only if it is a terminal.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.nouns import Event, Step

REFRESH_S = 0.5
"""Least seconds between two drawings: often enough for a reader, and negligible for a training loop."""
_WIPE = "\r\x1b[2K"


def takes_line(stream: TextIO) -> bool:
    """Return True if a stream is a terminal that can erase a line: a dumb one prints the sequence that asks for it."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


class StatusLine:
    """The line with steps, speed, loss, and the last event that began."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self.clock = clock
        self._drawn = False
        self._at_start = True
        self._due = 0.0
        self._since: tuple[float, int] | None = None
        self._noticed: dict[tuple[str, str | None], int] = {}
        self._wrapped: list[Any] = []
        self._write = stream.write

    def __call__(self, step: Step, events: tuple[Event, ...]) -> None:
        """Take one step on the training thread. Draws at most every REFRESH_S seconds."""
        for event in events:
            self._noticed.setdefault((event.kind, event.layer), event.first_step)
        now = self.clock()
        if self._since is None:
            self._since = (now, step.index)
        if now < self._due or not self._at_start:
            return
        self._due = now + REFRESH_S
        self._emit(_WIPE + self.text(step, now)[: shutil.get_terminal_size().columns - 1])
        self._drawn = True

    def say(self, line: str) -> None:
        """Print a line of ours, on a line of its own also if the program has not ended its last one."""
        self._wipe()
        self._emit(f"{line}\n" if self._at_start else f"\n{line}\n")
        self._at_start = True

    def text(self, step: Step, now: float) -> str:
        """Return the text of the line for a step."""
        began, first = self._since or (now, step.index)
        parts = [f"neuraldbg: step {step.index:,}"]
        if now > began:
            parts.append(f"{(step.index - first) / (now - began):.3g} steps/s")
        if step.loss is not None:
            parts.append(f"loss {step.loss:.4g}")
        if self._noticed:
            (kind, layer), at = next(reversed(self._noticed.items()))
            where = f" in {layer}" if layer else ""
            more = f" (+{len(self._noticed) - 1})" if len(self._noticed) > 1 else ""
            parts.append(f"{kind.replace('_', ' ')}{where} at step {at}{more}")
        else:
            parts.append("no problem so far")
        return "".join(c if c.isprintable() else "?" for c in " | ".join(parts))

    def listen(self) -> None:
        """Wrap the program's streams, so that the line is erased before the program prints; ``close`` undoes it."""
        for stream in {id(s): s for s in (sys.stdout, sys.stderr, self.stream)}.values():
            if stream is not None and stream.isatty():
                self._wrap(stream)

    def close(self) -> None:
        """Erase the line, and restore the streams."""
        for stream in self._wrapped:
            vars(stream).pop("write", None)
        self._wrapped.clear()
        self._wipe()
        self._at_start = False  # steps of a thread that still runs draw nothing any more

    def _wrap(self, stream: Any) -> None:
        write = stream.write

        def after_wiping(text: str) -> Any:
            self._wipe()
            if text:
                self._at_start = text.endswith("\n")
            return write(text)

        try:
            stream.write = after_wiping
        except AttributeError:  # a stream whose attributes cannot be set: there is no status line
            self._due = float("inf")
        else:
            self._wrapped.append(stream)

    def _wipe(self) -> None:
        if self._drawn:
            self._drawn = False
            self._emit(_WIPE)

    def _emit(self, text: str) -> None:
        try:
            self._write(text)
            self.stream.flush()
        except (OSError, ValueError):  # the terminal is gone or the program closed it
            self._due = float("inf")
