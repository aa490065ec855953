"""The parts of a pane: drawings in, the parts that differ from those in the browser out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from neuraldbg.dashboard.page import layout
from neuraldbg.dashboard.page.request import signature
from neuraldbg.show.format.safe_text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from neuraldbg.dashboard.page.tab import Drawing, Pane


class Part(NamedTuple):
    """A property of a component of a pane, which is updated by itself."""

    of: str
    """Name of the component, as in ``layout.named``."""
    shows: str
    """Name of the property."""
    made: Callable[[Drawing], Any] | None
    """Returns the value for a drawing. None for a component that is made once, for the first drawing that needs it."""


PARTS: dict[str, Part] = {
    "heading": Part("heading", "children", lambda d: plain(d.title)),
    "controls": Part("controls", "children", lambda d: d.controls),
    "room": Part("body", "className", layout.room),
    "beside": Part("beside", "children", layout.beside),
    "inside": Part("body", "children", None),
    "figure": Part("figure", "figure", layout.figure_of),
    "network": Part("network", "elements", lambda d: d.content or []),
    "words": Part("words", "children", lambda d: d.content),
}
CONTENT = ("figure", "network", "words")


def signatures(drawings: Mapping[Pane, Drawing]) -> dict[str, str]:
    """Return the signatures of all parts of some drawings, by ``part/pane``."""
    return {
        f"{name}/{pane.name}": _signature(name, drawing)
        for pane, drawing in drawings.items()
        for name in PARTS
        if (name == "inside" and not drawing.empty) or name == pane.part or name not in (*CONTENT, "inside")
    }


def fill(
    drawings: Mapping[Pane, Drawing],
    new: Collection[str],
    present: Mapping[str, list[str]],
    changed: Mapping[str, list[Any]],
    theme: str,
) -> None:
    """Put the values of the parts in ``new``, named by their keys in ``signatures``, into ``changed``.

    ``present`` names the panes of each part that the browser has, in the order of ``changed``.
    """
    for pane, drawing in drawings.items():
        for name, part in PARTS.items():
            if f"{name}/{pane.name}" not in new or pane.name not in present[name]:
                continue
            value = layout.inside(pane, drawing, theme) if part.made is None else part.made(drawing)
            changed[name][present[name].index(pane.name)] = value


def _signature(name: str, drawing: Drawing) -> str:
    made = PARTS[name].made
    if made is None:
        return "made"
    return signature((drawing.key if name == "figure" else "") or made(drawing))
