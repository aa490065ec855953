"""Titles of causes: short headings, each its own, without the id."""

from __future__ import annotations

import pytest

from neuraldbg.explain.causes import CAUSES
from neuraldbg.explain.verdict.source_lines import INSTEAD, USUAL, WHAT


def test_titles_are_short_headings_and_differ():
    titles = [cause.title for cause in CAUSES]
    assert len(set(titles)) == len(titles)
    for title in titles:
        assert title[0].isupper()
        assert not title.endswith(".")
        assert 8 <= len(title) <= 55
        assert "_" not in title


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_lines_of_a_cause_are_of_a_known_kind(cause):
    kind = USUAL[cause.category] if cause.place is None else cause.place
    assert not kind or kind in WHAT
    assert INSTEAD.get(kind, "step") in WHAT
    if kind == "backward":
        assert cause.id == "optimizer_step_missing", "the line of the backward pass is the fault of no other cause"
