"""``neuraldbg compare``: the first difference between two runs, and all others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuraldbg.cli.command import OK, VERDICT, Command, Result, examples, json_target, write_text
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.saved import Run


@examples(
    ("compare runs/before runs/after", "what differs first, and by how much"),
    ("compare --ranks 0 1 runs/one", "do two ranks hold the same model?"),
    ("compare a b --fail-on divergence", "for a shell script: status 3 if they differ"),
)
@click.command("compare", cls=Command, short_help="Find the first difference between two saved runs.")
@click.argument("one", metavar="A")
@click.argument("other", metavar="[B]", required=False)
@click.option(
    "--ranks", nargs=2, type=int, metavar="I J", help="Compare what two ranks of the one run A are to hold alike."
)
@click.option("--rtol", type=float, metavar="X", help="Relative tolerance. By default it follows from the dtypes.")
@click.option("--atol", type=float, metavar="X", help="Absolute tolerance. By default there is none.")
@click.option("--json", "json_to", metavar="FILE", help="Also write the comparison as strict JSON ('-': only that).")
@click.option("-o", "--out", metavar="PICTURE", help="Also draw both losses and the differences: .png, .svg or .pdf.")
@click.option("--terminal", is_flag=True, help="Also draw both losses and the differences as text.")
@click.option(
    "--fail-on",
    type=click.Choice(["divergence"]),
    help="Exit with status 3 unless the runs agree within the tolerance.",
)
def COMMAND(  # noqa: N802 (the name is the contract)
    one: str,
    other: str | None,
    ranks: tuple[int, int] | None,
    rtol: float | None,
    atol: float | None,
    json_to: str | None,
    out: str | None,
    terminal: bool,
    fail_on: str | None,
) -> Result:
    """Compare the runs A and B step by step and layer by layer: the first difference, its size, and its growth.

    A and B are run folders, .ndbg files or exported .json files. Layers that were renamed are matched by their
    structure. Made for "it trained before my change", float32 against bfloat16, eager against compiled, two ranks, two
    versions of a library.
    """
    from rich.console import Console  # noqa: PLC0415 (see command.py)

    from neuraldbg.saved import readable  # noqa: PLC0415
    from neuraldbg.show.terminal.comparison import print_comparison  # noqa: PLC0415

    target = json_target(json_to)
    if out is not None:
        _checked(Path(out))
    runs, names = _opened(one, other, ranks)
    comparison = runs[0].compare(runs[1], names=names, rtol=rtol, atol=atol, replicas=ranks is not None)
    if target != "-":  # standard output is the JSON alone then
        console = Console()
        with readable("shown"):
            print_comparison(comparison, console)
            if terminal:
                _print_views(runs, comparison, console)
    if out is not None:
        with readable("drawn"):
            _draw(runs, comparison, Path(out))
        click.echo(f"wrote {out}", err=target == "-")
    if target is not None:
        problem = write_text(comparison.to_json() + "\n", target)
        if problem:
            raise ConfigError(problem)
    alike = comparison.verdict in ("identical", "close") and not comparison.one_failed
    return VERDICT if fail_on and not alike else OK


def _opened(one: str, other: str | None, ranks: tuple[int, int] | None) -> tuple[tuple[Run, Run], tuple[str, str]]:
    """Read both runs, and find the shortest names that tell them apart."""
    from neuraldbg.record import find_run  # noqa: PLC0415
    from neuraldbg.saved import Run  # noqa: PLC0415

    if (other is None) == (ranks is None):
        raise ConfigError("name two runs, A and B, or one run with --ranks I J")
    if ranks is not None:
        files = find_run(Path(one), ranks[0]), find_run(Path(one), ranks[1])
        return (Run.load(files[0]), Run.load(files[1])), (f"rank {ranks[0]}", f"rank {ranks[1]}")
    assert other is not None
    same = find_run(Path(one)).resolve() == find_run(Path(other)).resolve()
    names = _names(*(Path(one).absolute(),) * 2) if same else _names(Path(one).absolute(), Path(other).absolute())
    return (Run.load(one), Run.load(other)), names


def _names(one: Path, other: Path) -> tuple[str, str]:
    """Return the last part of the paths that they do not share."""
    one, other = Path(os.path.normpath(one)), Path(os.path.normpath(other))
    if one == other:
        return one.stem, f"{other.stem} (again)"
    while one.name == other.name and one != one.parent:
        one, other = one.parent, other.parent
    return one.stem or str(one), other.stem or str(other)


def _checked(path: Path) -> None:
    """Refuse a picture that cannot be drawn before anything is computed."""
    from neuraldbg.show.static.canvas import target  # noqa: PLC0415

    if not target(path).absolute().parent.is_dir():
        raise ConfigError(f"cannot write {str(path)!r}: there is no folder {path.parent}; create it first")


def _print_views(runs: tuple[Run, Run], comparison: Comparison, console: Console) -> None:
    from neuraldbg.show.terminal.draw import drawn  # noqa: PLC0415
    from neuraldbg.show.terminal.marks import ASCII, UNICODE  # noqa: PLC0415
    from neuraldbg.show.views.pair import pair_views  # noqa: PLC0415

    marks = ASCII if console.options.ascii_only else UNICODE
    for view in pair_views(*runs, comparison):
        console.print()
        console.print(drawn(view, console.width, marks=marks), soft_wrap=True)


def _draw(runs: tuple[Run, Run], comparison: Comparison, path: Path) -> None:
    from neuraldbg.show.static.pair import save_pair  # noqa: PLC0415

    save_pair(runs[0], runs[1], comparison, path)
