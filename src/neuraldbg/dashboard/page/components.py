"""Text, links and tables as Dash components: any text of a run stays text, and a link is an address of this page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.show.format.safe_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def choices(scene: Scene, label: str, field: str, options: Iterable[tuple[str, str]], chosen: str) -> html.Div:
    """Return a row of links, each of which sets one field of the address."""
    links = [
        go(words, scene.link(**{field: value}), current="true" if value == chosen else "") for value, words in options
    ]
    return html.Div([html.Span(label, className="choices-label"), *links], className="choices", role="group")


def table(heads: Sequence[Any], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> html.Div:
    """Return a table that scrolls horizontally on a narrow screen; the columns in ``numbers`` are right-aligned."""

    def kind(at: int) -> str:
        return "number" if at in numbers else ""

    head = html.Thead(html.Tr([html.Th(h, className=kind(i), scope="col") for i, h in enumerate(heads)]))
    body = html.Tbody([html.Tr([html.Td(cell, className=kind(i)) for i, cell in enumerate(row)]) for row in rows])
    return html.Div(html.Table([head, body]), className="scroll", tabIndex=0)


def later(what: str, how: str) -> html.P:
    """Return a paragraph in place of content that this run does not have: its name, and how to record it."""
    return html.P([html.Strong(f"{what} "), how], className="empty")
