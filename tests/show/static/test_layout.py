"""Nothing is cut off and nothing lies upon something else: on real runs and on the hardest views, small and large."""

from __future__ import annotations

import pytest
from tests.families import some
from tests.show.static import hard_views
from tests.show.static.figure_layout import clipped, overlapping, texts, upon_data

from neuraldbg.show.static.canvas import LEAST_IN
from neuraldbg.show.static.draw import figure
from neuraldbg.show.views import VIEWS, view

LOOKS = [((5.0, 4.0), "dark"), (None, "light")]
HARD = {
    "heat of 3": hard_views.heat,
    "heat of 120": lambda: hard_views.heat(hard_views.paths(120), 240),
    "lines of 3": hard_views.lines,
    "lines of 12": lambda: hard_views.lines(12),
    "lines of 30": lambda: hard_views.lines(30),
    "bars of 3": hard_views.bars,
    "bars of 120": lambda: hard_views.bars(hard_views.paths(120), 3),
    "stack of 3": hard_views.stack,
    "stack of 120": lambda: hard_views.stack(hard_views.paths(120)),
    "timeline of 3": hard_views.timeline,
    "timeline of 120": lambda: hard_views.timeline(hard_views.paths(120)),
    "histograms": hard_views.spread,
    "moments": lambda: hard_views.spread(histograms=False),
    "chain": hard_views.graph,
    "graph of 60": lambda: hard_views.graph(60),
}


def check(made):
    assert clipped(made) == []
    assert upon_data(made) == []
    assert overlapping(made) == []


@pytest.mark.parametrize(("size_in", "theme"), some(LOOKS, 2))
@pytest.mark.parametrize("name", [member.name for member in VIEWS])
def test_views_of_a_real_run(failed, name, size_in, theme):
    check(figure(view(name, *failed), size_in=size_in, theme=theme))


@pytest.mark.parametrize(("size_in", "theme"), some(LOOKS, 2))
@pytest.mark.parametrize("name", HARD)
def test_hard_views(name, size_in, theme):
    check(figure(HARD[name](), size_in=size_in, theme=theme))


@pytest.mark.parametrize(("size_in", "theme"), some(LOOKS, 2))
@pytest.mark.parametrize("name", hard_views.hostile())
def test_hostile_names(name, size_in, theme):
    made = figure(hard_views.hostile()[name], size_in=size_in, theme=theme)
    check(made)
    said = [text for text, _ in texts(made)]
    assert any(r"a\$x_1\$<img" in text.replace("\n", "") for text in said), said
    assert not {"\x1b", "\u202e", "\u2066", "\u4e2d"} & set("".join(said))
    assert not [text for text in said if "$" in text.replace(r"\$", "") and "mathdefault" not in text]


def test_no_picture_is_smaller_than_its_words():
    made = figure(hard_views.heat(), size_in=(0.5, 0.5))
    assert tuple(made.get_size_inches()) == LEAST_IN
    assert clipped(made) == []
