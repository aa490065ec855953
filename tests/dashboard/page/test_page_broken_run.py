"""A run that the page cannot say everything of: the others, and the list of all, stay."""

from __future__ import annotations

import pytest
from dash import html
from tests.dashboard.served_page import MemoryFeed

from neuraldbg.dashboard.page import request as module
from neuraldbg.dashboard.page.request import Desk, draw
from neuraldbg.dashboard.settings import DashboardSettings
from neuraldbg.nouns import RunRecord


def words(component):
    """All text below a component, in order."""
    children = getattr(component, "children", component)
    if isinstance(children, (list, tuple)):
        return " | ".join(filter(None, map(words, children)))
    return words(children) if isinstance(children, html.Div.__mro__[1]) else str(children or "")


@pytest.fixture
def feed():
    return MemoryFeed(good=RunRecord(), bad=RunRecord())


@pytest.mark.parametrize("change", [{"started": 1e300}, {"started": "abc"}, {"script": 5}, {"steps": "many"}])
def test_an_entry_that_cannot_be_written_says_so_in_its_row(feed, change):
    feed.put("bad", RunRecord(), **change)
    look = Desk(feed, DashboardSettings()).look("?tab=runs&sort=-run", "light")
    drawing = draw(look.scene, look.tab.panes[-1])
    table, _ = drawing.content.children.children, drawing.title
    good, bad = (words(row) for row in table[1].children)
    assert "good" in good
    assert "internal error" not in good
    assert "bad" in bad
    assert "internal error: this row could not be written" in bad


def test_a_run_whose_suspect_cannot_be_found_still_leads_to_the_others(feed, monkeypatch):
    def fails(state, moment):
        raise ZeroDivisionError("of our own")

    monkeypatch.setattr(module, "fitting", fails)
    with pytest.raises(ZeroDivisionError):
        Desk(feed, DashboardSettings()).look("?tab=runs", "light")
    monkeypatch.delenv("NEURALDBG_STRICT")
    look = Desk(feed, DashboardSettings()).look("?tab=runs", "light")
    assert look.scene.problems == ("internal error: ZeroDivisionError: of our own",)
    assert "bad" in words(draw(look.scene, look.tab.panes[-1]).content)
