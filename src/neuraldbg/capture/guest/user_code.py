"""The line of the user's own code that runs now: the innermost frame that belongs to no library."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

_LIBRARIES = tuple(
    {
        str(Path(path))
        for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
        if path
    }
    | {str(Path(__file__).parents[2])}
)
_DEPTH = 200


class Place(NamedTuple):
    """A line of the user's code: file, line number, text."""

    file: str
    line: int
    code: str
    """The line without its indentation, empty if the source is not available."""


def user_place() -> Place | None:
    """Return the innermost line of the calling code outside of Python's library, installed packages and this one. None
    if there is none within 200 frames.
    """
    frame = user_frame()
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    return Place(file, line, linecache.getline(file, line, frame.f_globals).strip()[:160])


def user_frame() -> FrameType | None:
    """Return the innermost frame of the calling code outside of Python's library, installed packages and this one. None
    if there is none within 200 frames.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    for _ in range(_DEPTH):
        if frame is None or not foreign(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def running(code: CodeType | None) -> Iterator[FrameType]:
    """Yield the frames of the calling thread that run a function's code, the innermost first."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if frame.f_code is code:
            yield frame
        frame = frame.f_back


def is_users(file: str) -> bool:
    """Return True if a file is the user's own code: no library, and not generated."""
    return not foreign(file)


def foreign(file: str) -> bool:
    """Return True for a file of Python's library, of an installed package or of this one."""
    # "<frozen runpy>", "<string>" of a dataclass; a notebook cell has a name of its own and a source
    return (
        file.startswith(_LIBRARIES) or "site-packages" in file or file.startswith(("<frozen", "<string>", "<__array"))
    )
