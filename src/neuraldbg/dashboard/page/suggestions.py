"""The bottlenecks of a Profile and their remedies as a pane: those of time and those of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.dashboard.page.components import layer_link
from neuraldbg.dashboard.page.tab import Drawing
from neuraldbg.profile import profile
from neuraldbg.show.format.safe_text import plain, sentence

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns.profile import Bottleneck

OF_TIME = frozenset({"data_loading", "evaluation", "many_small_layers", "one_layer", "optimizer", "outside"})
"""Kinds of bottlenecks that take time; all others take memory."""


def of_time(scene: Scene) -> Drawing:
    """Return the bottlenecks of time; nothing if no step was timed."""
    found = profile(scene.run)
    if found.timing is None:
        return Drawing("", empty="No step was timed.")
    none, notes = "No part of the step takes much more time than it must, as far as was measured.", found.notes
    if found.timing.doubtful:  # no bottleneck of time was looked for
        none = found.timing.caution()
        notes = tuple(note for note in notes if note != none)
    of_them = [one for one in found.bottlenecks if one.kind in OF_TIME]
    return _drawing(scene, "What takes the time", of_them, notes, none)


def of_memory(scene: Scene) -> Drawing:
    """Return the bottlenecks of memory; nothing if there are none: leaks have a pane of their own."""
    told = profile(scene.run)
    listed = told.growth is not None and bool(told.growth.survivors)
    found = [one for one in told.bottlenecks if one.kind not in OF_TIME and not (listed and one.kind == "leak")]
    return _drawing(scene, "What takes the memory", found, ()) if found else Drawing("", empty="Nothing was found.")


def _drawing(scene: Scene, title: str, found: list[Bottleneck], notes: tuple[str, ...], none: str = "") -> Drawing:
    if not found:
        return Drawing(title, empty=none, notes=notes)
    return Drawing(title, html.Ul([_item(scene, one) for one in found]), notes)


def _item(scene: Scene, one: Bottleneck) -> html.Li:
    words: list[Any] = [plain(sentence(one.text))]
    if one.layer is not None:
        words += [" ", layer_link(scene, one.layer)]
    if one.remedy:
        words += [html.Br(), html.Strong("To change it: "), plain(sentence(one.remedy))]
    return html.Li(words)
