"""Every reader of a saved run, each called as a user calls it: a file in, what went wrong out."""

# ruff: noqa: TRY301
from __future__ import annotations

import contextlib
import io
import re
import shutil
import time
import traceback
from typing import TYPE_CHECKING

from neuraldbg.cli import main
from neuraldbg.dashboard.run_feed import RunFeed
from neuraldbg.errors import NeuralDbgError, RunFileError
from neuraldbg.saved import Run
from neuraldbg.show.views import VIEWS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
"""What must not reach a terminal."""
_LOST = re.compile("could not be judged: ")
_BEYOND = re.compile(f"{_LOST.pattern}(OverflowError|ZeroDivisionError|FloatingPointError)")
SLOW_S, TIMES = 4.0, 2.5
"""A reader is slow that takes so many seconds of the processor, and so many times as long as with the undamaged file:
a report draws every picture, which on a busy machine takes as long by itself."""
FORMATS = ("crash", "csv", "json", "parquet", "perfetto", "session", "tensorboard")


class Wrong(Exception):
    """A reader did what none may do."""


def command(*args: object, may_fail: bool = False) -> tuple[int, str]:
    """Run a command; Wrong for anything but success, or one clean sentence and exit status 2."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(arg) for arg in args])
    said = err.getvalue()
    if status not in ((0, 2) if may_fail else (0,)):
        raise Wrong(f"{args[0]} ended with {status}: {said[:500]}")
    if found := UNSAFE.search(out.getvalue() + said):
        raise Wrong(f"{args[0]} prints {found[0]!r}: {(out.getvalue() + said)[max(0, found.start() - 60) :][:120]!r}")
    if status == 2 and (not said.startswith("neuraldbg: ") or said.count("\n") != 1 or len(said) > 1200):
        raise Wrong(f"{args[0]} says {said[:1500]!r}")
    if "Traceback" in said:
        raise Wrong(said)
    return status, said


def explained(file: Path, folder: Path) -> None:
    """Diagnose it in Python and in the terminal."""
    del folder
    diagnosis = Run.load(file).diagnose()
    diagnosis.to_json()
    str(diagnosis)
    diagnosis._repr_html_()
    # Arithmetic may leave the numbers that there are: then a cause says so. No cause may meet a fact of another shape.
    lost = [one for one in diagnosis.unjudged if _LOST.match(one.reason) and not _BEYOND.match(one.reason)]
    if lost:
        raise Wrong(f"a judge raised: {lost}")
    command("explain", file)


def judged(file: Path, folder: Path) -> None:
    """Judge its health in Python."""
    del folder
    health = Run.load(file).health()
    health.to_json()
    str(health)
    health._repr_html_()
    if health.score is not None and not 0 <= health.score <= 100:
        raise Wrong(f"a score of {health.score}")


def compared(file: Path, folder: Path) -> None:
    """Compare it with the run that it was made of, in either order."""
    whole = folder / "whole.ndbg"
    command("compare", file, whole)
    command("compare", whole, file, "--json", folder / "comparison.json", "--terminal")


def documented(file: Path, folder: Path) -> None:
    """Write it as a JSON document, and read that."""
    target = folder / "again.json"
    command("export", file, "--format", "session", "-o", target, "--force")
    Run.load(target)


def fed(file: Path, folder: Path) -> None:
    """Show it to the dashboard."""
    del folder
    feed = RunFeed(file, pace_s=0.01)
    feed.start()
    try:
        (entry,) = feed.runs()
        feed.moment(entry.key)
        if entry.problem and "internal error" in entry.problem:
            raise Wrong(entry.problem)
        feed.compare(entry.key, entry.key)
    finally:
        feed.close()


def reported(kind: str) -> Callable[[Path, Path], None]:
    """Return a reader that writes a report."""

    def read(file: Path, folder: Path) -> None:
        command("report", file, "-o", folder / f"report.{kind}")

    return read


def drawn(view: str, *more: str) -> Callable[[Path, Path], None]:
    """Return a reader that draws a view."""

    def read(file: Path, folder: Path) -> None:
        where = () if more else ("-o", folder / "view.png")
        command("plot", file, "--view", view, *where, *more)

    return read


def exported(form: str) -> Callable[[Path, Path], None]:
    """Return a reader that exports to a format."""

    def read(file: Path, folder: Path) -> None:
        command("export", file, "--format", form, "-o", folder / f"exported.{form}", "--force")

    return read


EACH = {"explain": explained}
QUICK = {
    "compare": compared,
    "dashboard": fed,
    "health": judged,
    "read again": documented,
    "report md": reported("md"),
    **{f"export {form}": exported(form) for form in FORMATS},
    **{f"plot {view.name} in the terminal": drawn(view.name, "--terminal") for view in VIEWS},
}
"""A few hundredths of a second each."""
PICTURES = {f"plot {name}": drawn(name) for name in ("crash", *(view.name for view in VIEWS))}
"""A few tenths."""
WHOLE = {"report html": reported("html")}
"""Some seconds."""
READERS = {**EACH, **QUICK, **PICTURES, **WHOLE}


def drawn_lots(draw: random.Random) -> list[str]:
    """Choose the readers of a mutant that can be read, the slower the more seldom."""
    names = [*EACH, draw.choice(sorted(QUICK))]
    lot = draw.random()
    return [*names, *draw.sample(sorted(PICTURES), lot < 1 / 12), *(WHOLE if lot > 1 - 1 / 200 else ())]


def undamaged(name: str, folder: Path) -> float:
    """Return the seconds of the processor that a reader takes for the file that a mutant was made of."""
    began = time.process_time()
    READERS[name](folder / "whole.ndbg", folder)
    return time.process_time() - began


def through(file: Path, folder: Path, names: list[str]) -> tuple[str, list[str]]:
    """Give a file to readers; return whether it was "refused" or "read", and what went wrong."""
    wrong: list[str] = []
    try:
        Run.load(file)
        what = "read"
    except RunFileError:
        what = "refused"
    except Exception:
        return "failed", [f"Run.load: {traceback.format_exc()}"]
    if what == "refused":
        names = ["explain"]
    for name in names:
        began = time.process_time()
        try:
            if what == "refused":
                if command("explain", file, may_fail=True)[0] != 2:
                    raise Wrong("what cannot be loaded was explained")
            else:
                READERS[name](file, folder)
        except NeuralDbgError as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
        except Exception:
            wrong.append(f"{name}: {traceback.format_exc()}")
        if (took := time.process_time() - began) > SLOW_S and took > TIMES * (usual := undamaged(name, folder)):
            wrong.append(f"{name}: took {took:.1f} s, and {usual:.1f} s with the undamaged file")
    for made in folder.iterdir():
        if made.name.startswith("exported."):
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    return what, wrong
