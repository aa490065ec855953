"""Text, links and tables as Dash components: any text of a run stays text, and a link is an address of this page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.dashboard.page.context import WEIGHTS
from neuraldbg.explain.causes import CAUSES
from neuraldbg.show.format.safe_text import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from neuraldbg.dashboard.page.context import Scene


SIGNS = {"failing": "✗", "suspect": "!", "healthy": "✓", "inconclusive": "?"}


def aria(**names: str) -> dict[str, Any]:
    """Return attributes for assistive technology: ``aria(label="x")`` is ``aria-label``."""
    return {f"aria-{name}": value for name, value in names.items()}


def data(**names: str) -> dict[str, Any]:
    """Return attributes for ``assets/page.js``: ``data(pane="x")`` is ``data-pane``."""
    return {f"data-{name}": value for name, value in names.items()}


def go(words: str, address: str, current: str = "") -> html.A:
    """Return a link within the page, which ``assets/page.js`` follows without loading the page again.

    ``current`` is the value of ``aria-current`` for a link to the present content: ``page`` or ``true``; "" for others.
    """
    return html.A(plain(words), href=address, className="go", **(aria(current=current) if current else {}))


def layer_link(scene: Scene, layer: str | None, step: int | None = None) -> Any:
    """Return a link to a layer, and to a step if one is given."""
    if layer is None:
        return "the whole run"
    change = {"layer": layer} if step is None else {"layer": layer, "step": step}
    return go(layer or "(model)", scene.link(**change), current="true" if scene.state.layer == layer else "")


def step_link(scene: Scene, step: int, layer: str | None = None) -> html.A:
    """Return a link to a step, and to a layer if one is given."""
    change: dict[str, Any] = {"step": step} if layer is None else {"step": step, "layer": layer}
    return go(f"{step:,}", scene.link(**change), current="true" if scene.state.step == step else "")


def banner(state: str, word: str = "") -> html.P:
    """Return a verdict with the sign and the colour of a state."""
    sign = html.Span(SIGNS.get(state, "?"), **aria(hidden="true"))
    return html.P([sign, f" {word or state}"], className=f"verdict {state}")


def choices(
    scene: Scene, label: str, field: str, options: Iterable[tuple[str | None, str]], chosen: str | None
) -> html.Div:
    """Return a row of links, each of which sets one field of the address."""
    links = [
        go(words, scene.link(**{field: value}), current="true" if value == chosen else "") for value, words in options
    ]
    return html.Div(
        [html.Span(label, className="choices-label"), *links], className="choices", role="group", **aria(label=label)
    )


def smoothing(scene: Scene) -> html.Div:
    """Return the links that choose by how much curves are smoothed."""
    options = ((None, "off"), *((weight, weight) for weight in WEIGHTS))
    return choices(scene, "smoothing", "smooth", options, scene.state.smooth)


def title_of(cause: str) -> str:
    """Return the title of a cause, with a capital; its id if this version has no such cause."""
    found = next((one.title for one in CAUSES if one.id == cause), "") or cause.replace("_", " ")
    return found[:1].upper() + found[1:]


@dataclass(frozen=True)
class Order:
    """The column by which a table is sorted, and the direction."""

    column: str
    down: bool
    """True for the largest value first."""

    @classmethod
    def of(cls, asked: str | None, columns: Collection[str], default: str) -> Order:
        """Return the order that the address names, ``default`` if it names none of the columns."""
        wanted = asked if asked is not None and asked.removeprefix("-") in columns else default
        return cls(wanted.removeprefix("-"), wanted.startswith("-"))

    def heads(self, scene: Scene, titles: Mapping[str, str]) -> list[html.Span]:
        """Return column heads, by column, that sort a table by that column; a second click reverses the order."""
        sign = " ▼" if self.down else " ▲"
        return [
            html.Span(go(title + sign * (name == self.column), scene.link(sort=self._next(name))))
            for name, title in titles.items()
        ]

    def _next(self, column: str) -> str:
        return f"-{column}" if column == self.column and not self.down else column


def table(
    heads: Sequence[Any], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = (), current: int | None = None
) -> html.Div:
    """Return a table that scrolls horizontally on a narrow screen; the columns in ``numbers`` are right-aligned, and
    the row ``current`` is marked.
    """

    def kind(at: int) -> str:
        return "number" if at in numbers else ""

    def line(at: int, row: Sequence[Any]) -> html.Tr:
        mark = aria(current="true") if at == current else {}
        return html.Tr([html.Td(cell, className=kind(i)) for i, cell in enumerate(row)], **mark)

    head = html.Thead(html.Tr([html.Th(h, className=kind(i), scope="col") for i, h in enumerate(heads)]))
    body = html.Tbody([line(i, row) for i, row in enumerate(rows)])
    return html.Div(html.Table([head, body]), className="scroll", tabIndex=0)
