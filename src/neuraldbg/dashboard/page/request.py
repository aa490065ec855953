"""The run and tab of an address, and the drawing of panes, without callbacks."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plotly.io.json import to_json_plotly

from neuraldbg.dashboard.page.address import read
from neuraldbg.dashboard.page.cache import Newest
from neuraldbg.dashboard.page.context import Beside, Scene, fitting, said
from neuraldbg.dashboard.page.tab import Drawing
from neuraldbg.dashboard.page.tabs import TABS
from neuraldbg.errors import NeuralDbgError
from neuraldbg.show.format.safe_text import plain

if TYPE_CHECKING:
    from neuraldbg.dashboard.feed import Entry, Feed, Moment
    from neuraldbg.dashboard.page.address import State
    from neuraldbg.dashboard.page.tab import Pane, Tab
    from neuraldbg.dashboard.settings import DashboardSettings
    from neuraldbg.show.forms import View

VIEWS, FIGURES = 48, 48
"""Views and figures in the caches at most, over all runs and browsers."""


@dataclass(frozen=True)
class Look:
    """A tab of a run at one moment, as an address selects it."""

    scene: Scene
    tab: Tab

    @property
    def place(self) -> str:
        """Run, tab and theme: while they stay the same, panes are updated in place."""
        return f"{self.scene.entry.key}\n{self.tab.id}\n{self.scene.theme}"


class Desk:
    """Resolves addresses for one dashboard, and holds its caches of views and figures."""

    def __init__(self, feed: Feed, settings: DashboardSettings) -> None:
        self.feed = feed
        self.settings = settings
        known = {tab.id: tab for tab in TABS}
        self.tabs = tuple(known[name] for name in settings.charts if name in known) or TABS
        self._views: Newest[View] = Newest(VIEWS)
        self._figures: Newest[dict[str, Any]] = Newest(FIGURES)

    def look(self, search: str | None, theme: str | None) -> Look | None:
        """Return run and tab of an address; None if there is no run."""
        state, problems = read(search)
        entries = self.feed.runs()
        if not entries:
            return None
        # An unknown run or tab is replaced by the first one, and reported.
        entry = next((e for e in entries if e.key == state.run), None)
        if entry is None:
            if state.run is not None:
                problems += (f"There is no run {plain(state.run[:80])!r} here: the newest is shown.",)
                state = replace(state, run=None, layer=None, step=None, first=None, last=None)
            entry = entries[0]
        tab = next((tab for tab in self.tabs if tab.id == state.tab), None)
        if tab is None:
            if state.tab is not None:
                problems += (f"There is no tab {plain(state.tab[:80])!r}: {', '.join(t.id for t in self.tabs)} are.",)
                state = replace(state, tab=None)
            tab = self.tabs[0]
        try:
            moment = self.feed.moment(entry.key)
        except KeyError:
            return None  # the run was removed a moment ago: the next request does not find it
        state, layer, step, more = _fitted(state, moment)
        beside = None
        if tab.id == "compare":
            state, beside, refused = self._beside(state, entry, entries)
            more += refused
        scene = Scene(
            state=state,
            entry=entry,
            entries=entries,
            moment=moment,
            theme="dark" if theme == "dark" else "light",
            points=self.settings.max_history,
            layer=layer,
            step=step,
            problems=(*problems, *more),
            views=self._views,
            figures=self._figures,
            beside=beside,
        )
        return Look(scene, tab)

    def _beside(
        self, state: State, entry: Entry, entries: tuple[Entry, ...]
    ) -> tuple[State, Beside | None, tuple[str, ...]]:
        """Return the state, the run to compare with (the only other one if none is named), and sentences about ignored
        parts.
        """
        others = [e for e in entries if e.key != entry.key]
        refused: tuple[str, ...] = ()
        other = next((e for e in others if e.key == state.with_), None)
        if other is None and state.with_ is not None:
            refused = (f"There is no other run {plain(state.with_[:80])!r} here to compare with.",)
            state = replace(state, with_=None)
        if other is None and len(others) == 1:
            other = others[0]
        if other is None:
            return state, None, refused
        try:
            comparison = self.feed.compare(entry.key, other.key)
            moment = self.feed.moment(other.key)
        except KeyError:
            return state, None, refused  # as in ``look``
        return state, Beside(other, moment, comparison, signature(repr(comparison))), refused


def _fitted(state: State, moment: Moment) -> tuple[State, str | None, int | None, tuple[str, ...]]:
    """Return the result of ``fitting``; if it fails the address's own values, so that other runs can be reached."""
    try:
        return fitting(state, moment)
    except Exception as error:
        if os.environ.get("NEURALDBG_STRICT"):
            raise
        return state, state.layer, state.step, (f"internal error: {type(error).__name__}: {error}",)


def draw(scene: Scene, pane: Pane) -> Drawing:
    """Draw a pane. An error becomes a sentence in this pane, and the others stay.

    Any error that is not a NeuralDbgError is raised under our own tests.
    """
    try:
        return pane.draw(scene)
    except NeuralDbgError as error:
        return Drawing(pane.name, empty=said(error))
    except Exception as error:
        if os.environ.get("NEURALDBG_STRICT"):
            raise
        return Drawing(pane.name, empty=plain(f"This could not be drawn: {type(error).__name__}: {error}"))


def signature(value: Any) -> str:
    """Return a hash of a value. The browser sends the hashes of its parts, and gets only those that differ."""
    return hashlib.blake2b(to_json_plotly(value).encode(), digest_size=9).hexdigest()
