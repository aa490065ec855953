"""The tab of runs: all runs of the folder as a table to sort and to filter, and the losses of several in one plot."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.dashboard.page.address import State, keys_of, listed, written
from neuraldbg.dashboard.page.components import SIGNS, Order, aria, go, table, title_of
from neuraldbg.dashboard.page.figures import curves
from neuraldbg.dashboard.page.layout import STANDS
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.nouns.diagnosis import VERDICTS
from neuraldbg.show.format.phrases import percent
from neuraldbg.show.format.safe_text import duration, number, plain, shortest
from neuraldbg.show.views.several_losses import losses_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.dashboard.feed import Entry
    from neuraldbg.dashboard.page.context import Scene

MOST = 100
"""Rows of the table at most."""
DRAWN, PICKED = 6, 12
"""Runs whose losses are drawn if nobody picked any, and those that can be picked at most."""
HEIGHT = 380
"""Height of the plot in pixels."""

HEADS = {
    "run": "run", "verdict": "verdict", "cause": "first cause", "loss": "final loss", "steps": "steps",
    "duration": "duration", "state": "state", "started": "started", "script": "script",
}  # fmt: skip
NUMBERS = (4, 5, 6)
KEYS: dict[str, Callable[[Entry], Any]] = {
    "run": lambda e: e.label.lower(),
    "verdict": lambda e: VERDICTS.index(e.verdict) if e.verdict in VERDICTS else None,
    "cause": lambda e: title_of(e.cause).lower() if e.cause else None,
    "loss": lambda e: _worst_as_inf(e.losses[0]) if e.losses else None,
    "steps": lambda e: e.steps,
    "duration": lambda e: e.duration_s,
    "state": lambda e: e.state,
    "started": lambda e: e.started,
    "script": lambda e: e.script,
}
"""Value of each column by which rows are sorted; rows without one come last in either direction."""


def _worst_as_inf(loss: float) -> float:
    return math.inf if math.isnan(loss) else loss


def chosen(scene: Scene) -> list[Entry]:
    """Return the runs that have all words of the filter, in the order of the address, by default newest first."""
    words = (scene.state.filter or "").lower().split()
    left = [entry for entry in scene.entries if all(word in _text(entry) for word in words)]
    order = Order.of(scene.state.sort, KEYS, "-started")
    keyed = [(_key(entry, order.column), entry) for entry in left]
    known = sorted((pair for pair in keyed if pair[0] is not None), key=itemgetter(0), reverse=order.down)
    return [entry for _, entry in known] + [entry for key, entry in keyed if key is None]


def _key(entry: Entry, column: str) -> tuple[bool, Any] | None:
    """Return what a row is sorted by; None if it has no such value, or a strange entry has one of another kind."""
    try:
        value = KEYS[column](entry)
    except (AttributeError, TypeError, ValueError):
        return None
    return (isinstance(value, str), value) if isinstance(value, (str, int, float)) else None


def _text(entry: Entry) -> str:
    """Return what a filter is looked for in: everything that the row says in words."""
    cause = f"{entry.cause} {title_of(entry.cause)}" if entry.cause else ""
    stands = f"{entry.state} {STANDS.get(entry.state, '')} {entry.problem}"
    return f"{entry.label} {entry.verdict} {cause} {stands} {entry.script}".lower()


def drawn_keys(scene: Scene) -> tuple[str, ...]:
    """Return the keys of the runs whose losses are drawn: those picked, else the open run and those of its script,
    or the next of the table if it is the only one.
    """
    if scene.state.runs is not None:
        known = {entry.key for entry in scene.entries}
        return tuple(key for key in keys_of(scene.state.runs) if key in known)[:PICKED]
    here = scene.entry
    left = [entry for entry in chosen(scene) if entry.losses]
    near = sorted(left, key=lambda entry: (entry.key != here.key, entry.script != here.script))
    alike = [entry for entry in near if entry.script == here.script]
    return tuple(entry.key for entry in (alike if len(alike) > 1 else near)[:DRAWN])


def losses(scene: Scene) -> Drawing:
    """Draw the losses of several runs in one plot."""
    known = {entry.key: entry for entry in scene.entries}
    some = [known[key] for key in drawn_keys(scene)]
    if not some:
        return Drawing("Loss of several runs", empty="No run is selected: tick one in the table below.")
    drawable = sum(bool(entry.losses) for entry in scene.entries)
    view = losses_of([(entry.label, entry.curves) for entry in some], drawable)
    if len(some) < drawable:
        most = f"at most {PICKED} at once" if len(some) == PICKED else "tick others in the table below"
        view = replace(view, notes=(*view.notes, f"{len(some):,} of {drawable:,} runs are drawn: {most}"))
    asked = tuple((entry.key, entry.steps, entry.duration_s) for entry in some)
    return curves(scene, view, asked, height=HEIGHT, alone=True)


def runs(scene: Scene) -> Drawing:
    """Return the table of runs; each rank of a run is a run of its own."""
    found = chosen(scene)
    picked = drawn_keys(scene)
    order = Order.of(scene.state.sort, KEYS, "-started")
    heads = ["plot", *order.heads(scene, HEADS), "compare"]
    rows = [_row_of(scene, entry, picked) for entry in found[:MOST]]
    here = next((i for i, entry in enumerate(found[:MOST]) if entry.key == scene.entry.key), None)
    count = f"{len(found):,} of {len(scene.entries):,}" if scene.state.filter else f"{len(found):,}"
    notes = [f"{len(found) - MOST:,} runs are not listed: a filter finds them"] if len(found) > MOST else []
    if any(entry.losses for entry in found):
        notes.append("Final loss: median of the last tenth of the losses, of at most 50")
    empty = "" if found else "No run matches the filter."
    return Drawing(f"Runs ({count})", table(heads, rows, NUMBERS, here) if found else None, tuple(notes), empty)


def _row_of(scene: Scene, entry: Entry, picked: tuple[str, ...]) -> list[Any]:
    """Return the row of a run; an error with one run does not hide the others."""
    try:
        return _row(scene, entry, picked)
    except Exception as error:  # noqa: BLE001 (of a strange entry; the row shows the error)
        said = f"internal error: this row could not be written ({type(error).__name__}: {error})"
        return ["", plain(str(entry.label)), "", plain(said), *[""] * 7]


def _row(scene: Scene, entry: Entry, picked: tuple[str, ...]) -> list[Any]:
    here = entry.key == scene.entry.key
    started = f"{datetime.fromtimestamp(entry.started).astimezone():%Y-%m-%d %H:%M}" if entry.started else ""
    stands = STANDS.get(entry.state, entry.state)
    return [
        _toggle(scene, entry, picked),
        go(entry.label, written(State(run=entry.key, smooth=scene.state.smooth)), current="true" if here else ""),
        _badge(entry.verdict) if entry.verdict or entry.problem else "not judged yet",
        _cause(entry),
        html.Span(plain(" / ".join(number(loss) for loss in entry.losses)), title=plain(_names(entry))),
        f"{entry.steps:,}",
        duration(entry.duration_s) if entry.duration_s > 0 else "",
        plain(f"{stands}: {entry.problem}" if entry.problem else stands),
        html.Span(started, className="moment"),
        html.Span(plain(entry.script.rpartition("/")[2]), title=plain(shortest(entry.script))),
        "" if here else go("compare", written(State(run=scene.entry.key, tab="compare", with_=entry.key))),
    ]


def _names(entry: Entry) -> str:
    """Return the names of several losses in the order of their values; "" for one."""
    return " / ".join(name for name, _ in entry.curves) if len(entry.curves) > 1 else ""


def _toggle(scene: Scene, entry: Entry, picked: tuple[str, ...]) -> Any:
    """Return the link that draws the loss of a run, or no longer draws it; "" for a run without a loss."""
    if not entry.losses:
        return ""
    on = entry.key in picked
    after = [key for key in picked if key != entry.key] if on else [*picked, entry.key]
    link = go("☑" if on else "☐", scene.link(runs=listed(after[-PICKED:])))
    words = f"{'Remove' if on else 'Draw'} the loss of {plain(entry.label)}"
    return html.Span(link, title=words, className="toggle", **aria(label=words))


def _badge(verdict: str) -> Any:
    if not verdict:
        return ""
    return html.Span(
        [html.Span(f"{SIGNS.get(verdict, '?')} ", **aria(hidden="true")), verdict], className=f"badge {verdict}"
    )


def _cause(entry: Entry) -> Any:
    if not entry.cause:
        return ""
    return html.Span(plain(f"{title_of(entry.cause)} · {percent(entry.confidence)}"), title=plain(entry.cause))


TAB = Tab("runs", "Runs", (Pane("several_losses", "figure", losses, wide=True), Pane("runs", "words", runs, wide=True)))
