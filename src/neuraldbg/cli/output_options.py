"""The options about what is said and written when a run has ended, which `run` and `debug` share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from neuraldbg.arguments import writable
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.nouns import Diagnosis

Words: TypeAlias = "Callable[[Diagnosis], str]"
"""Returns what a caller of the command line has to say of a diagnosis, "" for nothing."""

_MOST = 200
"""Characters of a note at most: it stands below every picture."""


@dataclass(frozen=True)
class Further:
    """The views, the export and the note that are asked for beside the diagnosis."""

    views: tuple[str, ...] = ()
    """Names of views, which are printed below the diagnosis."""
    export: Path | None = None
    """The file that the whole run is written to."""
    note: str = ""
    """A remark that every picture of the run shows."""

    words: Words | None = None
    """What the caller of the command line says of a diagnosis."""

    @property
    def keywords(self) -> dict[str, Any]:
        """Return what of it a session is told."""
        return {"note": self.note} if self.note else {}


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets what they say as ``further``."""

    @functools.wraps(function)
    def called(*, views: tuple[str, ...], export: str | None, note: str, **given: Any) -> Any:
        if len(note) > _MOST or not note.isprintable():
            raise click.UsageError(f"--note is one line of at most {_MOST} characters")
        words: Words | None = click.get_current_context().obj
        return function(**given, further=Further(_known(views), _target(export), note, words))

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


_OPTIONS = (
    click.option(
        "--show",
        "views",
        multiple=True,
        metavar="VIEW",
        help="Also print a view of the run below the diagnosis, such as `flow`, `units` or `stability`; `neuraldbg "
        "plot --help` lists them. May be given several times.",
    ),
    click.option(
        "--export",
        metavar="FILE",
        help="Also write the whole run as JSON, for `neuraldbg compare` and others; an earlier export is replaced.",
    ),
    click.option("--note", default="", metavar="TEXT", help="A remark that every picture and page of the run shows."),
)


def _known(views: tuple[str, ...]) -> tuple[str, ...]:
    if views:
        from neuraldbg.show.views import VIEWS  # noqa: PLC0415 (imports numpy, which is the program's to import first)

        names = [member.name for member in VIEWS]
        for name in views:
            if name not in names:
                raise ConfigError(f"--show: there is no view {name!r}: choose one of {', '.join(names)}")
    return views


def _target(export: str | None) -> Path | None:
    if export is None:
        return None
    if not export.endswith(".json"):
        raise ConfigError(f"--export {export}: name a file that ends in .json; `neuraldbg export` has other formats")
    return writable(Path(export).absolute(), "--export")
