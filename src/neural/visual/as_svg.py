"""A picture as the text of an SVG, whole in itself: no script, no font and no address of another file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from neural.visual.looks import DARK, FAMILY, LIGHT, edge, face
from neural.visual.shapes import ROUND, STRIPE, Arrow, Frame, Round, Words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neural.visual.shapes import Picture

FONT = '"DejaVu Sans", Verdana, system-ui, "Segoe UI", sans-serif'


def variables(colours: Mapping[str, str]) -> str:
    """Return the colours of a theme as variables of CSS."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


STYLE = f"""
:root {{ {variables(LIGHT)} color-scheme: light dark; }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}
.flow text {{ font-family: {FONT}; white-space: pre; }}
.flow .bold {{ font-weight: 700; }}
.flow .way {{ fill: none; stroke: var(--line); stroke-width: 1.5; }}
"""


def svg(picture: Picture, *, alone: bool = True) -> str:
    """Return the SVG of a picture; one that does not stand alone takes the style of the page around it."""
    wide, high = _number(picture.width), _number(picture.height)
    title = written(picture.title)
    lines = [
        (
            f'<svg class="flow" xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
            f'viewBox="0 0 {wide} {high}" role="img" aria-label="{title}">'
        ),
        f"<title>{title}</title>",
        *([f"<style>{STYLE}</style>"] if alone else []),
        (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'markerUnits="userSpaceOnUse" orient="auto">'
            '<path d="M0 0L8 4L0 8z" style="fill: var(--line)"/></marker></defs>'
        ),
        f'<rect width="{wide}" height="{high}" style="fill: var(--ground)"/>',
    ]
    for shape in picture.shapes:
        match shape:
            case Frame():
                lines += _frame(shape)
            case Round():
                lines.append(
                    f'<circle cx="{_number(shape.x)}" cy="{_number(shape.y)}" r="{_number(shape.radius)}" '
                    f'style="{_colours(shape.look)}"/>'
                )
            case Words():
                lines.append(_words(shape))
            case Arrow():
                marker = ' marker-end="url(#head)"' if shape.head else ""
                lines.append(f'<path class="way" d="{_path(shape)}"{marker}/>')
    return "\n".join([*lines, "</svg>", ""])


def written(text: str) -> str:
    """Return a text as XML holds it: characters that it cannot hold are left out."""
    return escape("".join(each if each.isprintable() or each == "\n" else " " for each in text))


def _frame(shape: Frame) -> list[str]:
    x, y, wide, high = map(_number, (shape.x, shape.y, shape.width, shape.height))
    dashes = " stroke-dasharray: 5 3;" if shape.look == "block" else ""
    lines = ["<g>"]
    if shape.hint:
        lines.append(f"<title>{written(shape.hint)}</title>")
    lines.append(
        f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="{ROUND:g}" style="{_colours(shape.look)}{dashes}"/>'
    )
    if shape.family in FAMILY and shape.look != "block":
        inset = _number(shape.y + ROUND / 2)
        lines.append(
            f'<rect x="{x}" y="{inset}" width="{STRIPE:g}" height="{_number(shape.height - ROUND)}" rx="2" '
            f'style="fill: {FAMILY[shape.family]}"/>'
        )
    return [*lines, "</g>"]


def _colours(look: str) -> str:
    return f"fill: var(--{face(look)}); stroke: var(--{edge(look)});"


def _words(shape: Words) -> str:
    anchor = ' text-anchor="middle"' if shape.centred else ""
    weight = ' class="bold"' if shape.bold else ""
    return (
        f'<text x="{_number(shape.x)}" y="{_number(shape.y)}" font-size="{shape.size:g}"{anchor}{weight} '
        f'style="fill: var(--{shape.look})">{written(shape.text)}</text>'
    )


def _path(shape: Arrow) -> str:
    return "".join(
        command + " ".join(f"{_number(x)} {_number(y)}" for x, y in points) for command, points in shape.commands
    )


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
