"""Words of a run as Dash components: text is text, whatever it holds, and a link is an address of this page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.show.format.safe_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neuraldbg.dashboard.page.context import Scene


SIGNS = {"failing": "✗", "suspect": "!", "healthy": "✓", "inconclusive": "?"}


def aria(**names: str) -> dict[str, Any]:
    """Return what only assistive technology sees: ``aria(label="x")`` is the attribute ``aria-label``."""
    return {f"aria-{name}": value for name, value in names.items()}


def data(**names: str) -> dict[str, Any]:
    """Return what only ``assets/page.js`` reads: ``data(pane="x")`` is the attribute ``data-pane``."""
    return {f"data-{name}": value for name, value in names.items()}


def go(words: str, address: str, current: str = "") -> html.A:
    """Return a link within the page; ``assets/page.js`` follows it without loading the page again.

    ``current`` is what the link leads to where that is shown already: ``page`` or ``true``.
    """
    return html.A(plain(words), href=address, className="go", **(aria(current=current) if current else {}))


def layer_link(scene: Scene, layer: str | None, step: int | None = None) -> Any:
    """Return the link that leads to a layer, and to a step if one is given."""
    if layer is None:
        return "the whole run"
    change = {"layer": layer} if step is None else {"layer": layer, "step": step}
    return go(layer or "(model)", scene.link(**change), current="true" if scene.state.layer == layer else "")


def step_link(scene: Scene, step: int, layer: str | None = None) -> html.A:
    """Return the link that leads to a step, and to a layer if one is given."""
    change: dict[str, Any] = {"step": step} if layer is None else {"step": step, "layer": layer}
    return go(f"{step:,}", scene.link(**change), current="true" if scene.state.step == step else "")


def banner(state: str, word: str = "") -> html.P:
    """Return a verdict with the sign and the colour of a state."""
    sign = html.Span(SIGNS.get(state, "?"), **aria(hidden="true"))
    return html.P([sign, f" {word or state}"], className=f"verdict {state}")


def choices(scene: Scene, label: str, field: str, options: Iterable[tuple[str, str]], chosen: str) -> html.Div:
    """Return a row of links of which each sets one field of the address."""
    links = [
        go(words, scene.link(**{field: value}), current="true" if value == chosen else "") for value, words in options
    ]
    return html.Div([html.Span(label, className="choices-label"), *links], className="choices", role="group")


def table(heads: Sequence[Any], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> html.Div:
    """Return a table that scrolls for itself where the screen is narrow; columns of ``numbers`` are right-aligned."""

    def kind(at: int) -> str:
        return "number" if at in numbers else ""

    head = html.Thead(html.Tr([html.Th(h, className=kind(i), scope="col") for i, h in enumerate(heads)]))
    body = html.Tbody([html.Tr([html.Td(cell, className=kind(i)) for i, cell in enumerate(row)]) for row in rows])
    return html.Div(html.Table([head, body]), className="scroll", tabIndex=0)


def later(what: str, how: str) -> html.P:
    """Return the empty place of something that this run does not hold."""
    return html.P([html.Strong(f"{what} "), how], className="empty")
