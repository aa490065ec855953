"""A click group that knows its commands by name and imports one only when it is used."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class LazyGroup(click.Group):
    """``members`` maps a command's name to the module that holds its ``COMMAND``."""

    def __init__(self, name: str, members: Mapping[str, str], **settings: Any) -> None:
        super().__init__(name, **settings)
        self.members = members
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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of registration."""
        del ctx
        return list(self.members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None for an unknown name."""
        del ctx
        where = self.members.get(cmd_name)
        if where is None:
            return None
        command = import_module(where).COMMAND
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with the two mistakes that people make answered: a typo, and ``run`` forgotten."""
        name = args[0]
        if name not in self.members and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.members, n=1)
            hint = f" Did you mean `neuraldbg {near[0]}`?" if near else ""
            if name.endswith(".py"):
                hint = f" Did you mean `neuraldbg run {name}`?"
            ctx.fail(f"there is no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (40 ms that only this needs)

        try:
            click.echo(f"neuraldbg {version('neuraldbg')}")
        except PackageNotFoundError:
            click.echo("neuraldbg (not installed: run from its source)")
        ctx.exit()
