"""The interpreter of the command ``interact``: it reads and writes where the prompt does, and leaves nothing behind."""

from __future__ import annotations

import code
import contextlib
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import pdb  # noqa: T100 (for its type)
    from collections.abc import Iterator
    from types import CodeType

_PROMPTS = ("ps1", "ps2")


class Console(code.InteractiveConsole):
    """An interactive interpreter at a prompt. Standard input may be the program's own data."""

    def __init__(self, prompt: pdb.Pdb, names: dict[str, Any]) -> None:
        # Python's own `exit` closes standard input, which the program goes on reading.
        super().__init__({**names, "exit": _leave, "quit": _leave})
        self._prompt = prompt

    def talk(self) -> None:
        """Take lines until the person leaves."""
        with _prompts_restored(), contextlib.suppress(SystemExit):
            self.interact("Python, with the names of this frame. Ctrl-D goes back to the prompt.", "")

    def raw_input(self, prompt: str = "") -> str:
        """Read a line. Raises EOFError at the end of input."""
        if self._prompt.use_rawinput:
            return input(prompt)
        self.write(prompt)
        line = self._prompt.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def write(self, data: str) -> None:
        """Write to the person."""
        self._prompt.stdout.write(data)
        self._prompt.stdout.flush()

    def runcode(self, code: CodeType) -> None:
        """Execute lines, with the streams of the prompt and without the variable ``_``."""
        theirs = sys.stdin, sys.stdout, sys.displayhook
        sys.stdin, sys.stdout, sys.displayhook = self._prompt.stdin, self._prompt.stdout, self._prompt.displayhook
        try:
            super().runcode(code)
        finally:
            sys.stdin, sys.stdout, sys.displayhook = theirs

    def showtraceback(self) -> None:
        """Print the exception being handled. It is not kept in ``sys``, and no hook of the program is called."""
        kind, error, trace = sys.exc_info()
        self.write("".join(traceback.format_exception(kind, error, trace and trace.tb_next)))

    def showsyntaxerror(self, filename: str | None = None, **more: Any) -> None:
        """Print the error of a line that is not Python."""
        del filename, more
        self.write("".join(traceback.format_exception_only(*sys.exc_info()[:2])))


def _leave(code: object = None) -> NoReturn:
    raise SystemExit(code)


@contextlib.contextmanager
def _prompts_restored() -> Iterator[None]:
    """Put back the attributes of ``sys`` by which a program sees that it is interactive."""
    before = {name: getattr(sys, name) for name in _PROMPTS if hasattr(sys, name)}
    try:
        yield
    finally:
        for name in _PROMPTS:
            if name in before:
                setattr(sys, name, before[name])
            elif hasattr(sys, name):
                delattr(sys, name)
