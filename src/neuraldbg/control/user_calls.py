"""Calls of functions that the user gave to a session, such as hooks and actions of breakpoints: their exceptions are
the user's, are reported as such, and do not end the training.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuraldbg.errors import TrainingHalted
from neuraldbg.raised import passes, words_of
from neuraldbg.unlisted_thread import unlisted_here

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger("neuraldbg")
_PACKAGE = Path(__file__).parent.parent


class UserCalls:
    """The calls of one session, and the exceptions that came out of them."""

    def __init__(self) -> None:
        self._raised: dict[str, tuple[int, int, str]] = {}
        """(number of exceptions, step of the first, its last line), by the role of the function."""

    def call(
        self,
        role: str,
        step: int,
        function: Callable[..., Any],
        *args: Any,
        place: str = "",
        then: str = "the training goes on",
        each: bool = False,
    ) -> Exception | None:
        """Call a function of the user's at a step. Return what it raises, None if nothing.

        ``role`` says what it is: "the action of the breakpoint on 'x'", ``place`` where it was called beside the step,
        and ``then`` what follows. The first exception of a role, with ``each`` every one, is reported with its
        traceback, by the logger ``neuraldbg``, or on standard error if that has no handler. TrainingHalted passes: by
        it a function can stop the training. So does all that is no Exception, such as KeyboardInterrupt.
        """
        try:
            function(*args)
        except TrainingHalted:
            raise
        except Exception as error:
            if passes(error):  # a time limit of the program's, or the debugger's "quit"
                raise
            times, first, words = self._raised.get(role, (0, step, words_of(error)))
            if each or not times:
                _report(f"{role} raised at {f'{place}, ' if place else ''}step {step}; {then}.\n{traceback_of(error)}")
            self._raised[role] = times + 1, first, words
            return error
        return None

    @property
    def notes(self) -> list[str]:
        """Return a sentence for each function that raised, for the coverage of the run."""
        return [
            f"{role}, a function of the program, raised {'once' if times == 1 else f'{times:,} times'}, "
            f"{'at' if times == 1 else 'first at'} step {step}: {words}"
            for role, (times, step, words) in self._raised.items()
        ]


def traceback_of(error: Exception) -> str:
    """Return the traceback of an exception of the user's, from the user's own first frame on."""
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None and Path(tb.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(error), error, tb)).rstrip()


def _report(text: str) -> None:
    """Log a text, or print it if nobody listens. Python's logging would list a thread of ours."""
    if _LOG.hasHandlers() and not unlisted_here():
        _LOG.warning("%s", text)
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the program has closed the stream, or removed it
        sys.stderr.write(f"NeuralDBG: {text}\n")
        sys.stderr.flush()
