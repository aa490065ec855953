"""The tab of memory: over time, by layer, at its peak, what grows with the line that keeps it, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.dashboard.page.components import table
from neuraldbg.dashboard.page.figures import ROWS, curves, drawn
from neuraldbg.dashboard.page.suggestions import of_memory
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.nouns.facts.footprint import FootprintFact
from neuraldbg.nouns.facts.growth import GrowthFact
from neuraldbg.show.format.leaks import kind_of, none_found, place_of, remedy_of, span_of
from neuraldbg.show.format.safe_text import number, plain
from neuraldbg.show.format.unit_amounts import amount

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns.facts.growth import Survivors
    from neuraldbg.nouns.facts.kinds import SourceLine

LEAKS = "Tensors that live on from step to step"
MOST = 50
"""Kinds of tensors in the table at most."""
HEADS = ("tensors", "added in a step", "bytes a step", "alive", "made at", "kept at", "what to do")


def over_time(scene: Scene) -> Drawing:
    """Draw resident memory and that of the device."""
    return curves(scene, scene.view("memory_over_time"))


def layers(scene: Scene) -> Drawing:
    """Draw the bytes of each layer's tensors."""
    return drawn(scene, "memory", step=scene.step, rows=ROWS)


def peaks(scene: Scene) -> Drawing:
    """Draw the peak while each layer ran; nothing if no step's memory was measured, as the curve over time says."""
    if scene.run.known(FootprintFact) is None:
        return Drawing("", empty="No peak was measured.")
    return drawn(scene, "memory_peak", rows=ROWS)


def leaks(scene: Scene) -> Drawing:
    """Return the tensors whose number grows, with the lines that make and keep them; nothing if none were counted."""
    growth = scene.run.known(GrowthFact)
    if growth is None:
        return Drawing("", empty="Tensors were not counted.")
    if not growth.survivors:
        return Drawing(LEAKS, empty=f"{none_found(growth)}.")
    rows = [_row(one) for one in growth.survivors[:MOST]]
    more = len(growth.survivors) - MOST
    notes = (f"Tensors are {span_of(growth)}", *((f"{more:,} smaller kinds are left out",) if more > 0 else ()))
    return Drawing(f"{LEAKS} ({len(growth.survivors):,})", table(HEADS, rows, numbers=(1, 2, 3)), notes)


def _row(one: Survivors) -> list[Any]:
    return [
        plain(kind_of(one)),
        number(float(f"{one.per_step:.3g}")),
        amount(one.bytes_per_step, "B"),
        f"{one.alive:,}",
        _line(one.made),
        _line(one.kept),
        plain(remedy_of(one)),
    ]


def _line(line: SourceLine | None) -> Any:
    """Return a line of the user's code below its file and number."""
    if line is None:
        return "not known"
    code = [html.Pre(plain(line.text.strip(), keep="\n"), tabIndex=0)] if line.text.strip() else []
    return html.Figure([html.Figcaption(plain(place_of(line))), *code], className="place")


TAB = Tab(
    "memory",
    "Memory",
    (
        Pane("over_time", "figure", over_time, wide=True),
        Pane("leaks", "words", leaks, wide=True),
        Pane("suggestions", "words", of_memory, wide=True),
        Pane("layers", "figure", layers, wide=True),
        Pane("peaks", "figure", peaks, wide=True),
    ),
)
