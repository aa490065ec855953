"""The command line: `neural COMMAND`. Exit status 0 ok, 1 the file has problems, 2 wrong use."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import click

from neural.cli.check import COMMAND as CHECK
from neural.cli.clean import COMMAND as CLEAN
from neural.cli.compile import COMMAND as COMPILE
from neural.cli.config_file import defaults
from neural.cli.debug import COMMAND as DEBUG
from neural.cli.fmt import COMMAND as FMT
from neural.cli.profile import COMMAND as PROFILE
from neural.cli.run import COMMAND as RUN
from neural.cli.version import COMMAND as VERSION
from neural.cli.visualize import COMMAND as VISUALIZE
from neural.errors import NeuralError, SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (
    CHECK,
    CLEAN,
    COMPILE,
    DEBUG,
    FMT,
    PROFILE,
    RUN,
    VERSION,
    VISUALIZE,
)
"""Each is a file of this folder; its callback returns an exit status."""
OK, PROBLEMS, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
_WITHOUT_DEFAULTS = {"-h", "--help", "--version", "version"}
"""Arguments with which no file of settings is read: help must be there when that is wrong."""


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        VERSION.main([], standalone_mode=False)
        context.exit()


@click.group("neural", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def GROUP() -> None:  # noqa: N802 (as COMMAND is)
    """Work with models that are described in a .neural file."""


for _command in COMMANDS:
    GROUP.add_command(_command)


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = sys.argv[1:] if args is None else list(args)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file's name may be of any bytes, and is printed all the same
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        told = {} if set(given) & _WITHOUT_DEFAULTS else defaults(GROUP)
        result = GROUP.main(given, prog_name="neural", standalone_mode=False, default_map=told)
        return int(result or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except SourceError as error:
        sys.stderr.write(f"{error}\n\n{_counted(len(error.problems), error.more)}\n")
        return PROBLEMS
    except NeuralError as error:
        sys.stderr.write(f"neural: {error}\n")
        return WRONG_USE


def _counted(problems: int, more: int) -> str:
    after = f", and {more:,} more" if more else ""
    return ("1 problem" if problems == 1 else f"{problems} problems") + after
