"""The debugger at a stop: Python's own, in a frame that holds layer, tensors, model and optimizer; more commands.

No tracing is switched on: a stop is a call from a hook, and the training goes on as before when it returns.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import pdb  # noqa: T100 (what this module is about)
import sys
import traceback
from typing import TYPE_CHECKING, Any, TextIO

from neuraldbg.debugger.console import Console
from neuraldbg.debugger.frames import own_frames
from neuraldbg.debugger.interrupts import heeded
from neuraldbg.debugger.missed_stops import in_words
from neuraldbg.debugger.stop import NAMES, NoAnswer
from neuraldbg.errors import NeuralDbgError
from neuraldbg.raised import passes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from neuraldbg.debugger.stop import Stop


_ALONE = frozenset(("next", "n", "step", "s", "where", "w", "bt", "diagnose", "quit", "q", "exit"))
"""Commands that take no argument."""
_OF_EXPRESSIONS = frozenset(("p", "pp", "stats", "hist", "watch", "whatis", "display", "undisplay", "source"))
"""Commands that are followed by an expression."""


class Debugger(pdb.Pdb):
    """The prompt at a stop: all commands of pdb that need no tracing, and those of ``help``."""

    OURS = ("layers", "next", "step", "stats", "hist", "where", "diagnose", "watch", "unwatch", "continue", "quit")

    def __init__(self, at: Stop, stdin: TextIO | None = None, stdout: TextIO | None = None) -> None:
        super().__init__(stdin=stdin, stdout=stdout, nosigint=True, readrc=False)
        self.prompt = "(neuraldbg) "
        self.at = at
        self.in_notebook = self._left = False
        self.quits = False
        self._every: list[tuple[FrameType, int]] = []

    def talk(self, frame: FrameType) -> None:
        """Take commands in a frame until one of them leaves the stop. Raises NoAnswer if no line can be read."""
        self.reset()
        self.setup(frame, None)
        self._every = self.stack
        self.stack = [(one, line) for one, line in own_frames(self.stack) if one is not frame] + self.stack[-1:]
        self.curindex = len(self.stack) - 1
        try:
            with contextlib.nullcontext() if self.in_notebook else heeded():
                while self._interrupted():
                    pass
        except Exception as error:
            if passes(error):  # a time limit of the program's
                raise
            raise NoAnswer(str(error)) from error
        finally:
            self.forget()

    def _interrupted(self) -> bool:
        """Take commands. Return True if Ctrl-C came meanwhile."""
        try:
            if self._left:
                self.message("\n(Ctrl-C leaves a line or a command; `quit` ends the training.)")
            self._left = False
            self.cmdloop()
        except KeyboardInterrupt:
            if self.in_notebook:  # an interrupt of the kernel ends the cell
                raise
            self._left = True
        return self._left

    def onecmd(self, line: str) -> bool:
        """Do a command, or run a line that is none. An error in it is printed, and the stop goes on."""
        try:
            word, rest, _ = self.parseline(line)
            if self._is_python(line.strip(), word, rest):
                self.lastcmd = line
                self.default(line.strip())
                return False
            if word in _ALONE and rest and not _quits(word, rest):
                self.error(f"`{word}` takes no argument; `p {word}` shows a variable of that name")
                return False
            return bool(super().onecmd(line))
        except Exception as error:
            if passes(error):
                raise
            self.error(f"{type(error).__name__}: {error}")
            return False

    def _is_python(self, line: str, word: str | None, rest: str | None) -> bool:
        """Return True if a line that begins with the name of a command is Python all the same: ``step == 7``,
        ``next(iter(loader))``, ``layers = [...]``.
        """
        if not word or not rest or not hasattr(self, f"do_{word}"):
            return False
        tree = _parsed(line)
        if tree is None or _quits(word, rest):
            return False
        if isinstance(tree.body[0], (ast.Assign, ast.AugAssign)):
            return True
        names = self._names()
        if word not in names and not hasattr(builtins, word):
            return False
        # `p -x` and `p (x)` are Python, too, but it is the expression that is meant.
        if word not in _OF_EXPRESSIONS or _parsed(rest) is None:
            return True
        return line[len(word)] == "[" or (line[len(word)] == "(" and callable(names.get(word)))

    def show_watched(self, own: Mapping[str, Any]) -> None:
        """Print the values of the watched expressions. ``own`` are the variables of the person's own function."""
        for number, expression in enumerate(self.at.watched, 1):
            self._print_value(number, expression, {**own, **self.at.names})

    def _print_value(self, number: int, expression: str, names: dict[str, Any]) -> None:
        try:
            value = eval(expression, {**sys.modules["__main__"].__dict__, **names})  # noqa: S307 (the person's own)
        except Exception as error:  # noqa: BLE001 (any, of the person's expression)
            value = f"{type(error).__name__}: {error}"
        self.message(f"  {number}: {expression} = {value}")

    # -- looking --------------------------------------------------------------------------------------------------

    def do_layers(self, arg: str) -> None:
        """``layers [WORD]``: list the layers of the model, by path, type and alias; those with WORD in one of them."""
        rows = [row for row in self.at.controls.layers() if not arg or any(arg.lower() in cell.lower() for cell in row)]
        if not rows:
            self.error(f"no layer has {arg!r} in its path, type or alias" if arg else "no layer is known yet")
        here = self.at.names["layer_name"]
        wide = max((len(path) for path, _, _ in rows), default=0)
        for path, kind, alias in rows:
            name = path or "(model)"
            self.message(f"{'>' if path == here else ' '} {name:<{wide}}  {kind}{f'  {alias}' if alias else ''}")

    def do_stats(self, arg: str) -> None:
        """``stats [EXPRESSION]``: show the statistics of a tensor, by default of the one that this stop is about."""
        found = self._asked(arg)
        if found is None:
            return
        name, value = found
        numbers = self.at.controls.statistics(value)
        if not numbers:
            self._nothing(name, value)
            return
        counts, moments = in_words(numbers)
        self.message(f"{name}: {counts}")
        if moments:
            self.message(f"  {moments}")

    def _nothing(self, name: str, value: Any) -> None:
        reason = self.at.controls.otherwise(value)
        self.error(f"{name} has no floating-point numbers: {reason}" if reason else f"{name} has no tensor")

    def do_hist(self, arg: str) -> None:
        """``hist [EXPRESSION]``: draw how the values of a tensor are distributed."""
        from neuraldbg.show.terminal.visualizer import TerminalVisualizer  # noqa: PLC0415 (only when asked for)

        found = self._asked(arg)
        if found is None:
            return
        values = self.at.controls.numbers(found[1])
        if values is None:
            self._nothing(*found)
            return
        self.message(TerminalVisualizer(80, 24).ascii_histogram(values, bins=12, title=found[0]).rstrip())

    def do_where(self, arg: str) -> None:
        """``where``: show the lines of your own code that lead here. `bt` shows every frame."""
        del arg
        for summary in traceback.StackSummary.extract(iter(own_frames(self._every[:-1]) or self._every[:-1])):
            self.message(f"  {summary.filename}:{summary.lineno} in {summary.name}\n    {summary.line}")

    do_w = do_where

    def do_bt(self, arg: str) -> None:
        """``bt``: show every frame."""
        del arg
        for entry in self._every:
            self.print_stack_entry(entry)

    def do_diagnose(self, arg: str) -> None:
        """``diagnose``: show the diagnosis of the run so far."""
        del arg
        self.message(self.at.controls.diagnosis())

    def do_watch(self, arg: str) -> None:
        """``watch EXPRESSION``: show its value now and at each stop. `watch` lists them, `unwatch N` takes one away."""
        if arg:
            self.at.watched.append(arg)
        if not self.at.watched:
            self.message("nothing is watched: `watch EXPRESSION`")
        for number, expression in enumerate(self.at.watched, 1):
            self._print_value(number, expression, self._names())

    def do_unwatch(self, arg: str) -> None:
        """``unwatch N``: no longer show the N-th watched expression."""
        try:
            number = int(arg)
            assert 1 <= number <= len(self.at.watched)
        except (ValueError, AssertionError):
            self.error(f"give a number from 1 to {len(self.at.watched)}")
            return
        del self.at.watched[number - 1]

    def do_args(self, arg: str) -> None:
        """``args``: list the names of the stop, with shapes of tensors."""
        del arg
        for name in NAMES:
            self.message(f"{name}: {_brief(self.at.names[name])}")

    do_a = do_args

    def do_interact(self, arg: str) -> None:
        """``interact``: take lines of Python, also those that go over several, until Ctrl-D."""
        del arg
        Console(self, self._names()).talk()

    def _names(self) -> dict[str, Any]:
        return {**self.curframe.f_globals, **self.curframe_locals} if self.curframe is not None else {}

    def _asked(self, arg: str) -> tuple[str, Any] | None:
        """Return name and value of the tensor that a command is about; None after an error message."""
        name = arg or self.at.main
        if not name:
            self.error("this stop is about a step, not a tensor: name one, such as `stats layer.weight`")
            return None
        if not arg:  # of this stop, in whatever frame the person is: `up` leads to one without these names
            return name, self.at.names[name]
        try:
            return name, self._getval(name)
        except Exception:  # noqa: BLE001 (the person's expression; _getval has said it)
            return None

    # -- going on -------------------------------------------------------------------------------------------------

    def do_next(self, arg: str) -> bool:
        """``next``: go on, and stop before the next layer."""
        del arg
        self.at.controls.stop_next_layer()
        return True

    def do_step(self, arg: str) -> bool:
        """``step``: go on, and stop before the first layer of the next step."""
        del arg
        self.at.controls.stop_next_step()
        return True

    def do_continue(self, arg: str) -> bool:
        """``continue [until NAME]``: go on to the next stop that is set; until an event (nan, loss_spike), a cause or a
        layer.
        """
        words = arg.split(maxsplit=1)
        if words and (words[0] != "until" or len(words) == 1):
            self.error("write `continue`, or `continue until nan` (an event, a cause or a layer)")
            return False
        if words:
            try:
                self.message(f"goes on until {self.at.controls.stop_at(words[1])}")
            except NeuralDbgError as error:
                self.error(str(error))
                return False
        return True

    def do_quit(self, arg: str) -> bool:
        """``quit``: end the training here. What was recorded is saved and diagnosed."""
        del arg
        self.quits = True
        return True

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 (the name is pdb's)
        """End of input: quit."""
        self.message("")
        return self.do_quit(arg)

    do_n, do_s = do_next, do_step
    do_c = do_cont = do_continue
    do_q = do_exit = do_quit

    def do_help(self, arg: str) -> None:
        """``help [COMMAND]``: show the commands of a stop, or what one does."""
        if arg and arg not in self.OURS:
            super().do_help(arg)
            return
        for name in (arg,) if arg else self.OURS:
            self.message("  " + " ".join(str(getattr(self, f"do_{name}").__doc__).split()).replace("``", ""))
        if arg:
            return
        self.message(f"Names: {', '.join(NAMES)}. Any other line is Python, run here; p, pp, up, down, list are pdb's.")
        self.message("`p step` shows a variable with the name of a command; `step == 7` is Python.")

    do_h = do_help

    def _traced(self, arg: Any, temporary: Any = None) -> None:
        """Not at this stop: `next` goes to the next layer, `step` to the next step; `breakpoint()` in your own code
        starts pdb with all commands.
        """
        del arg, temporary
        self.error(" ".join(str(self._traced.__doc__).split()))

    do_until = do_unt = do_return = do_r = do_jump = do_j = do_run = do_restart = _traced
    do_break = do_b = do_tbreak = do_clear = do_cl = do_commands = do_condition = do_ignore = _traced
    do_enable = do_disable = do_debug = _traced


def _brief(value: Any) -> str:
    """Return shape and dtype of a tensor, the type of another object, a number or a text itself."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} {tuple(shape)} {getattr(value, 'dtype', '')}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(_brief(one) for one in value)})"
    return repr(value) if value is None or isinstance(value, (int, float, str)) else type(value).__name__


def _quits(word: str, rest: str) -> bool:
    """Return True for ``quit()`` and the like: the command is meant, and Python's would close standard input."""
    return word in ("quit", "exit", "q") and rest.startswith("(")


def _parsed(text: str) -> ast.Module | None:
    """Return the tree of a line of Python; None if it is not Python, or empty."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    return tree if tree.body else None


TAKES_COMMANDS = (
    Debugger._interrupted,  # noqa: SLF001
    Debugger.onecmd,
    Debugger.do_interact,
    Console.talk,
    Console.raw_input,
    Console.runcode,
)
"""Functions that wait for a person, or for what the person's own expression does."""
