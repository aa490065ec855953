"""A click group that knows its commands by name and imports one only when it is used."""

from __future__ import annotations

import difflib
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

_OTHER_WORDS = {
    "cause": "causes",
    "check": "doctor",
    "break": "debug",
    "pdb": "debug",
    "step": "debug",
    "diagnose": "explain",
    "diff": "compare",
    "draw": "plot",
    "exec": "run",
    "help": "--help",
    "open": "dashboard",
    "show": "explain",
    "perf": "profile",
    "start": "run",
    "time": "profile",
    "train": "run",
    "ui": "dashboard",
    "version": "--version",
    "view": "plot",
    "watch": "run",
    "why": "explain",
}
"""Commands that go by other names in other tools."""


class LazyGroup(click.Group):
    """A group whose commands are modules: ``members`` maps a command's name to the module that holds its ``COMMAND``.

    ``welcome`` is printed if no command is given.
    """

    def __init__(self, name: str, members: Mapping[str, str], welcome: str = "", **settings: Any) -> None:
        super().__init__(name, no_args_is_help=False, **settings)
        self.members, self.welcome = members, welcome
        self.params.append(
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_version,
                help="Show the version and exit.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say what one does with the tool if nothing is asked of it."""
        if not args and not ctx.resilient_parsing:
            click.echo(self.welcome)
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of registration."""
        del ctx
        return list(self.members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None for an unknown name."""
        where = self.members.get(cmd_name)
        if where is None:
            return None
        command = import_module(where).COMMAND
        assert isinstance(command, click.Command)
        if ctx.resilient_parsing:  # a shell completes the command
            from neuraldbg.cli.completers import complete  # noqa: PLC0415 (only then)

            complete(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does, and answer the mistakes that people make: a typo, or a command forgotten."""
        name = args[0]
        if name not in self.members and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"there is no command {name!r}.{self._hint(name)}")
        return super().resolve_command(ctx, args)

    def _hint(self, name: str) -> str:
        """Return a sentence that names the command which was meant, with a space before it."""
        if name.endswith(".py"):
            meant = [f"run {name}"]
        elif name.endswith((".ndbg", os.sep)) or os.path.isdir(name):  # noqa: PTH112 (nothing else is loaded yet)
            meant = [f"explain {name}"]
        else:
            word = name.lower()
            meant = [_OTHER_WORDS[word]] if word in _OTHER_WORDS else difflib.get_close_matches(word, self.members, n=2)
        if not meant:
            return f" The commands are: {', '.join(self.members)}."
        return f" Did you mean {' or '.join(f'`neuraldbg {one}`' for one in meant)}?"


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (40 ms that only this needs)

        try:
            click.echo(f"neuraldbg {version('neuraldbg')}")
        except PackageNotFoundError:
            click.echo("neuraldbg (not installed: run from its source)")
        ctx.exit()
