"""Complete the arguments of commands for a shell: runs, layers, statistics, causes, files.

A completer gets the command line so far and the beginning of a word, and returns the words that it may become. Nothing
here raises: a shell would show the traceback in the middle of the line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Completer = Callable[[click.Context, str], Iterable[CompletionItem]]

RUNS = "neuraldbg-runs"
"""Folder in which runs are saved if no other is named."""
_PACKAGE = Path(__file__).parents[1]
_LAYERS = 500
"""Layers that a shell is told at most."""


def runs(ctx: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield runs, the newest first: those below the default folder, then folders and run files that begin so."""
    del ctx
    saved = [path for path in _entries(Path(RUNS)) if path.is_dir()] if not begun or RUNS.startswith(begun) else []
    yield from (CompletionItem(str(path)) for path in sorted(saved, key=_age))
    here = Path(begun) if begun.endswith("/") else Path(begun).parent
    for path in _entries(here):
        named = str(path)
        if named.startswith(begun.removeprefix("./")) and not path.name.startswith("."):
            if path.is_dir():
                yield CompletionItem(named if _holds_run(path) else f"{named}/")
            elif path.suffix == ".ndbg":
                yield CompletionItem(named)


def causes(ctx: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield the ids of causes: each is the name of a file, and none is imported for that."""
    del ctx
    names = {file.stem for file in (_PACKAGE / "explain" / "causes").glob("*/*.py")} - {"__init__"}
    yield from _beginning(sorted(names), begun)


def layers(ctx: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield the layers of the run that the command line names."""
    from neuraldbg.saved import Run  # noqa: PLC0415 (see command.py)

    # An option that still lacks its value keeps click from telling arguments and options apart.
    told = [ctx.params.get("run"), *ctx.args]
    run = next((word for word in told if isinstance(word, str) and Path(word).exists()), None)
    if run is not None:
        paths = [layer.path for layer in Run.load(run).layout.layers if layer.path]
        yield from _beginning(paths[:_LAYERS], begun)


def statistics(ctx: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield the statistics that are read of a site."""
    del ctx
    from neuraldbg.nouns import STATS  # noqa: PLC0415 (see command.py)

    yield from _beginning(("norm", *STATS), begun)


def kinds(ctx: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield the kinds of sites."""
    del ctx
    from neuraldbg.nouns import KINDS  # noqa: PLC0415 (see command.py)

    yield from _beginning(KINDS, begun)


def views(ctx: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield the views that `plot` draws."""
    del ctx
    from neuraldbg.show.views import VIEWS  # noqa: PLC0415 (see command.py)

    yield from _beginning(sorted(["crash", *(view.name for view in VIEWS)]), begun)


def files(ctx: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Leave it to the shell to complete the name of a file."""
    del ctx
    yield CompletionItem(begun, type="file")


COMPLETERS: dict[str, Completer] = {
    "cause_id": causes,
    "command": files,
    "config": files,
    "json_to": files,
    "kind": kinds,
    "layer": layers,
    "layers": layers,
    "name": views,
    "one": runs,
    "other": runs,
    "out": files,
    "run": runs,
    "stat": statistics,
    "stats": statistics,
}
"""Completers by the name of a parameter, of whatever command."""


class Completed(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """A type of arguments that takes what it is given, and knows what it may be."""

    def __init__(self, like: click.ParamType[Any], completer: Completer) -> None:
        self._like, self._completer = like, completer
        self.name = like.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as the type below has it."""
        return self._like.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the words that an argument may become; none where they cannot be found out."""
        del param
        try:
            return list(self._completer(ctx, incomplete))
        except Exception:  # noqa: BLE001 (a shell waits: an argument without completion is no error)
            return []


def complete(command: click.Command) -> None:
    """Let the arguments of a command be completed, those that have no choices of their own."""
    for param in command.params:
        if param.name in COMPLETERS and type(param.type) in (type(click.STRING), type(click.UNPROCESSED)):
            param.type = Completed(param.type, COMPLETERS[param.name])


def _beginning(words: Iterable[str], begun: str) -> Iterator[CompletionItem]:
    yield from (CompletionItem(word) for word in words if word.startswith(begun))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _holds_run(folder: Path) -> bool:
    return any(path.suffix == ".ndbg" for path in _entries(folder))


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0
