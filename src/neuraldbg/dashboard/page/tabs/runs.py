"""The tab of runs: all runs of the dashboard; a click opens one, or compares it with the one that is open."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from neuraldbg.dashboard.page.address import State, written
from neuraldbg.dashboard.page.components import go, table
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.show.format.safe_text import plain, shortest

if TYPE_CHECKING:
    from neuraldbg.dashboard.feed import Entry
    from neuraldbg.dashboard.page.context import Scene

MOST = 300
"""Rows of the table at most."""


def runs(scene: Scene) -> Drawing:
    """Return the table of runs, newest first; each rank of a run is a run of its own."""
    heads = ("run", "verdict", "how it stands", "steps", "started", "script", "beside")
    rows = [_row_of(scene, entry) for entry in scene.entries[:MOST]]
    more = len(scene.entries) - MOST
    notes = (f"{more:,} older runs are left out.",) if more > 0 else ()
    return Drawing(f"Runs ({len(scene.entries):,})", table(heads, rows, numbers=(3,)), notes)


def _row_of(scene: Scene, entry: Entry) -> list[Any]:
    """Return the row of a run; an error with one run does not hide the others."""
    try:
        return _row(scene, entry)
    except Exception as error:  # noqa: BLE001 (of a strange entry; the row shows the error)
        said = f"internal error: this row could not be written ({type(error).__name__}: {error})"
        return [plain(str(entry.label)), "", plain(said), "", "", "", ""]


def _row(scene: Scene, entry: Entry) -> list[Any]:
    name = go(entry.label, written(State(run=entry.key)), current="true" if entry.key == scene.entry.key else "")
    started = f"{datetime.fromtimestamp(entry.started).astimezone():%Y-%m-%d %H:%M}" if entry.started else ""
    beside = State(run=scene.entry.key, tab="compare", with_=entry.key)
    stands = entry.state if not entry.problem else f"{entry.state}: {entry.problem}"
    return [
        name,
        entry.verdict or "not judged yet",
        plain(stands),
        f"{entry.steps:,}",
        started,
        plain(shortest(entry.script)),
        "" if entry.key == scene.entry.key else go("compare", written(beside)),
    ]


TAB = Tab("runs", "Runs", (Pane("runs", "words", runs, wide=True),))
