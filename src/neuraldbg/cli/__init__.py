"""The command line: ``neuraldbg COMMAND``. Exit status 0 ok, 1 the script failed, 2 wrong use, 3 by ``--fail-on``."""

from __future__ import annotations

from neuraldbg.runner import modules_before  # noqa: F401 (what was loaded before anything else is)

# isort: split
import os
import sys
from typing import TYPE_CHECKING

import click

from neuraldbg.cli.group import LazyGroup
from neuraldbg.errors import NeuralDbgError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.cli.output_options import Words

COMMANDS = (
    "run",
    "debug",
    "explain",
    "report",
    "plot",
    "dashboard",
    "profile",
    "compare",
    "export",
    "causes",
    "doctor",
    "completion",
)
"""Commands in the order of their use, as the help lists them: to train, to read a run, to hand it on, and others.
Each is a file of this folder with a ``COMMAND`` (see ``command.py``), imported only when it is used."""

INTERRUPTED = 130
"""What a shell reports for a program that ended by Ctrl-C: 128 + SIGINT."""

WELCOME = """\
NeuralDBG says why a neural-network training failed: which cause, which layer,
which step, and the fix.

  neuraldbg run train.py     run a training under watch; the diagnosis comes last
  neuraldbg explain RUN      read the diagnosis again; `report RUN` writes it to a file
  neuraldbg dashboard RUN    look into every layer; `compare A B` finds what differs

A RUN is a folder in neuraldbg-runs. All commands: neuraldbg --help"""
"""What is printed if no command is given."""


def main(args: Sequence[str] | None = None, words: Words | None = None) -> int:
    """Run one command and return its exit status. A run that ended by Ctrl-C raises KeyboardInterrupt again.

    ``words`` returns what a caller has to say of a diagnosis, which is printed below it.
    """
    try:
        # The shell has already expanded what it wanted to expand: on Windows too, a script gets what python gives it.
        result = _group().main(
            None if args is None else list(args),
            prog_name="neuraldbg",
            standalone_mode=False,
            windows_expand_args=False,
            obj=words,
        )
        return result() if callable(result) else int(result or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except NeuralDbgError as error:
        sys.stderr.write(f"neuraldbg: {error}\n")
        return 2
    except FileNotFoundError:
        if there_is_a_working_directory():
            raise
        sys.stderr.write("neuraldbg: the working directory was deleted: go to another one\n")
        return 2


def there_is_a_working_directory() -> bool:
    """Return False if the folder in which the command or the program works was deleted."""
    try:
        os.getcwd()  # noqa: PTH109 (nothing else is loaded yet)
    except OSError:
        return False
    return True


def _group() -> LazyGroup:
    return LazyGroup(
        "neuraldbg",
        members={name: f"neuraldbg.cli.{name}" for name in COMMANDS},
        welcome=WELCOME,
        help="Finds out why a neural network training failed: the cause, the layer, the step and the fix.",
        epilog="Start with: neuraldbg run train.py",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
