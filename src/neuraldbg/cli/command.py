"""The contract of a command: what enters is its options, what leaves is an exit status.

A member is one file, ``cli/<name>.py``, with ``COMMAND: click.Command``, registered by one line in
``cli/__init__.py`` and imported only when it is used. Its callback returns a ``Result``. What it needs beyond click
it imports inside the callback, so that the help is instant and no command pays for another.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.nouns import Diagnosis

OK, FAILED, USAGE, VERDICT = 0, 1, 2, 3
"""Exit statuses: done; the watched script failed; wrong use; ``--fail-on`` and the verdict is that bad."""

Result: TypeAlias = "int | Callable[[], int] | None"
"""An exit status, or work to be done once the command line has been read: a script that itself uses click must not
find our context around it."""

fail_on = click.option(
    "--fail-on",
    type=click.Choice(["failing", "suspect"]),
    help="Exit with status 3 when the verdict is that bad or worse.",
)
json_to = click.option(
    "--json",
    "json_to",
    metavar="FILE",
    help="Also write the diagnosis as strict JSON ('-': standard output, after what a script prints there).",
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
    try:
        path = Path(given).absolute()
    except OSError as error:
        raise ConfigError(f"--json {given}: the folder that you are in was deleted; give a path from /") from error
    if path.is_dir():
        raise ConfigError(f"--json {given}: this is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise ConfigError(f"--json {given}: there is no folder {path.parent}; create it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"--json {given}: no permission to write there")
    return path


def write_json(diagnosis: Diagnosis, target: Path | str | None) -> str | None:
    """Write the diagnosis where ``json_target`` said; return why it could not be done, None when it was."""
    if target is None:
        return None
    text = diagnosis.to_json() + "\n"
    try:
        if isinstance(target, Path):
            target.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        return f"the JSON could not be written: {error}"
    return None
