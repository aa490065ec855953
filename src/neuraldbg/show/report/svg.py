"""A view as SVG in an HTML page, drawn once for light, dark and paper.

The picture is drawn in the light theme with a colour of its own for each meaning; in its SVG each of these becomes a
CSS variable, which the page sets for either ground. Nothing in it depends on when or where it was drawn. Needs the
extra ``plot``.
"""

from __future__ import annotations

import io
import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from neuraldbg.show.static.draw import figure, size_of
from neuraldbg.show.static.theme import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.show.forms import View

WIDE_IN, NARROW_IN = 7.4, 4.4
"""Widths in inches between the margins of a page, and of a phone: the type has the same size in both."""
CELLS_DPI = 110
"""Dots an inch of the cells of a heat map, which are no lines."""
NS = re.compile(r"^\{.*\}")
PAINTED = ("style", "fill", "stroke", "stop-color")
COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
REFERENCE = re.compile(r"url\(#([^)]+)\)")


def _variables(theme: Theme) -> Iterator[tuple[str, dict[str, str]]]:
    """Fields of a theme that hold colours, each with the variables for them."""
    for field in fields(theme):
        value = getattr(theme, field.name)
        colours = value if isinstance(value, tuple) else (value,)
        if all(COLOUR.fullmatch(colour) for colour in colours):
            names = [f"--{field.name}-{i}" for i in range(len(colours))] if value is colours else [f"--{field.name}"]
            yield field.name, dict(zip(names, colours, strict=True))


def _apart(theme: Theme) -> tuple[Theme, dict[str, str]]:
    """Return the theme with all colours made different by an invisible shade, and the name of each colour."""
    names: dict[str, str] = {}
    changed: dict[str, Any] = {}
    for field, variables in _variables(theme):
        told = []
        for variable, given in variables.items():
            colour = next(c for k in range(256) if (c := f"#{int(given[1:], 16) ^ k:06x}") not in names)
            names[colour] = variable
            told.append(colour)
        changed[field] = tuple(told) if isinstance(getattr(theme, field), tuple) else told[0]
    return replace(theme, **changed), names


DRAWN, NAMES = _apart(LIGHT)
"""The theme that is drawn, and the variable of each of its colours."""
THEMES = {
    theme.name: {name: colour for _, found in _variables(theme) for name, colour in found.items()}
    for theme in (LIGHT, DARK)
}
"""The colour of each variable, by theme."""


def inline(view: View, ident: str, width_in: float = WIDE_IN) -> str:
    """Return the picture as an ``<svg>`` element; ``ident`` makes the ids in it different from other pictures'."""
    root = ET.fromstring(_drawn(view, ident, width_in))  # noqa: S314 (written by matplotlib a line ago)
    used = {found for element in root.iter() for found in _references(element)}
    for parent in root.iter():
        for child in list(parent):
            if NS.sub("", str(child.tag)) in {"metadata", "style", "title"}:
                parent.remove(child)
    for element in root.iter():
        _plain(element, ident, used)
    width, height = (float(root.attrib.pop(side).removesuffix("pt")) for side in ("width", "height"))
    # What has no fill of its own is black to matplotlib, and so the ink.
    root.attrib.update({"viewBox": f"0 0 {width:g} {height:g}", "fill": "var(--ink)", "aria-hidden": "true"})
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _drawn(view: View, ident: str, width_in: float) -> str:
    import matplotlib as mpl  # noqa: PLC0415 (an extra)
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415

    untitled = replace(view, title="", notes=())  # the page says both as text
    shown = figure(untitled, size_in=(width_in, size_of(untitled)[1]), theme=DRAWN)
    shown.dpi = CELLS_DPI
    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": ident}):
        # savefig would draw everything once before, to lay it out: drawing does that by itself.
        FigureCanvasSVG(shown).print_svg(file, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return file.getvalue()


def _references(element: ET.Element) -> Iterator[str]:
    for name, value in element.attrib.items():
        yield from REFERENCE.findall(value)
        if NS.sub("", name) == "href" and value.startswith("#"):
            yield value[1:]


def _plain(element: ET.Element, ident: str, used: set[str]) -> None:
    """Reduce an element to plain HTML: names without namespaces, only ids with references, variables for colours."""
    element.tag = NS.sub("", str(element.tag))
    kept = {NS.sub("", name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    for name, given in kept.items():
        value = given
        if name == "id" and value not in used:
            continue
        if name == "id":
            value = f"{ident}-{value}"
        elif name == "href" and value.startswith("#"):
            value = f"#{ident}-{value[1:]}"
        elif name in PAINTED or "url(#" in value:
            value = REFERENCE.sub(rf"url(#{ident}-\1)", value)
            value = COLOUR.sub(lambda found: _variable(found.group()), value)
        element.set(name, value)


def _variable(colour: str) -> str:
    name = NAMES.get(colour.lower())
    return f"var({name})" if name else colour
