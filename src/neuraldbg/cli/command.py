"""The contract of a command: what enters is its options, what leaves is an exit status.

A member is one file, ``cli/<name>.py``, with ``COMMAND: click.Command``, registered by one line in
``cli/__init__.py`` and imported only when it is used. Its callback returns a ``Result``. What it needs beyond click
it imports inside the callback, so that the help is instant and no command pays for another.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from neuraldbg.arguments import writable
from neuraldbg.cli.tunnel_options import KindOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.nouns import Diagnosis

OK, FAILED, USAGE, VERDICT = 0, 1, 2, 3
"""Exit statuses: done; the watched script failed; wrong use, or a file that cannot be written; ``--fail-on`` and the
verdict is that bad."""

Result: TypeAlias = "int | Callable[[], int] | None"
"""An exit status, or work to be done once the command line has been read: a script that itself uses click must not
find our context around it."""


class Command(click.Command):
    """A command whose help has examples of its use above its options, and titles above groups of them."""

    examples: tuple[tuple[str, str], ...] = ()
    """Command lines after ``neuraldbg``, each with what it does."""
    groups: tuple[tuple[str, str], ...] = ()
    """Titles of groups of options, each with the names of their parameters; the others come last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line, after the options whose value was left out have got theirs."""
        params = self.get_params(ctx)
        for one in params:
            if isinstance(one, KindOption):
                args = one.written_out(args, params, interspersed=ctx.allow_interspersed_args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the options by group."""
        if self.examples:
            with formatter.section("Examples"):
                for line, text in self.examples:  # a line that is broken cannot be pasted
                    formatter.write(f"  neuraldbg {line}\n      {text}\n")
        for title, options in self.titled(ctx):
            rows = [record for one in options if (record := one.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(rows)

    def titled(self, ctx: click.Context) -> list[tuple[str, list[click.Option]]]:
        """Return the options by title, in the order of the help."""
        left = {one.name: one for one in self.get_params(ctx) if isinstance(one, click.Option)}
        found = [(title, [left.pop(name) for name in names.split()]) for title, names in self.groups]
        return [*found, ("Other options" if found else "Options", list(left.values()))]


def examples(*lines: tuple[str, str]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command its examples."""

    def give(command: Command) -> Command:
        command.examples = lines
        return command

    return give


def titles(*groups: tuple[str, str]) -> Callable[[Command], Command]:
    """Return a decorator that puts options of a command below titles: each with names of parameters, in one text."""

    def give(command: Command) -> Command:
        command.groups = groups
        return command

    return give


fail_on = click.option(
    "--fail-on",
    type=click.Choice(["failing", "suspect"]),
    help="Exit with status 3 if the verdict is this or worse.",
)
json_to = click.option(
    "--json",
    "json_to",
    metavar="FILE",
    help="Also write the diagnosis as strict JSON to a file ('-': standard output, after what a script prints there).",
)

verbose = click.option(
    "-v", "--verbose", is_flag=True, help="Show all causes with all evidence, and all that was not judged."
)


def verdict_status(diagnosis: Diagnosis, limit: str | None) -> int:
    """Return 3 when the verdict is as bad as ``--fail-on`` says or worse, else 0."""
    return VERDICT if limit is not None and diagnosis.worse_or_equal(limit) else OK


def json_target(given: str | None) -> Path | str | None:
    """Check before hours of training that the JSON can be written; ConfigError says why it cannot.

    The path is made absolute, because the script may change the working directory.
    """
    if given is None or given == "-":
        return given
    return writable(given, "--json")


def write_json(diagnosis: Diagnosis, target: Path | str | None) -> str | None:
    """Write the diagnosis where ``json_target`` said; return why it could not be done, None when it was."""
    return write_text(diagnosis.to_json() + "\n", target) if target is not None else None


def write_text(text: str, target: Path | str) -> str | None:
    """Write the text of a JSON where ``json_target`` said; return why it could not be done, None when it was."""
    try:
        if isinstance(target, Path):
            target.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        return f"the JSON could not be written: {error}"
    return None
