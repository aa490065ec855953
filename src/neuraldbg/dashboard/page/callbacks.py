"""The callbacks of the page: their inputs and outputs, and the answer to a request.

``refresh`` runs here, all others in the browser (``assets/page.js``), where a click needs no request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dash import ALL, ClientsideFunction, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from neuraldbg.dashboard.page import layout
from neuraldbg.dashboard.page.figures import zoomed
from neuraldbg.dashboard.page.pane_parts import PARTS, fill, signatures
from neuraldbg.dashboard.page.request import Desk, Look, draw, signature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash import Dash

    from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab


REST, LONGEST_REST = 4, 30
"""Times as long as the last drawing took that the page waits until the next, so that it takes a fifth of one core; and
the longest wait in seconds."""
PATIENCE_S, LARGE = 0.1, 100_000
"""Seconds of drawing in the first answer for a new tab; the rest comes in the next, panes in sight first. Rows of time
times sites of a record from which the first answer has text only: one figure would take as long as all of it.
"""


def connect(app: Dash, desk: Desk) -> None:
    """Register the callbacks."""
    _in_the_browser(app, desk.settings.theme)

    @app.callback(
        {
            "shown": Output("shown", "data"),
            "content": Output("content", "children"),
            "head": {name: Output(name, what) for name, what in HEAD.items()},
            "options": Output("layer", "options"),
            "layer": Output("layer", "value"),
            "step": Output("step", "value"),
            "parts": {name: Output({"part": part.of, "pane": ALL}, part.shows) for name, part in PARTS.items()},
        },
        {
            "search": Input("address", "search"),
            "theme": Input("theme", "data"),
            "_tick": Input("tick", "n_intervals"),
            "sight": Input("sight", "data"),
            "shown": State("shown", "data"),
            "zooms": State("zooms", "data"),
        },
    )
    def refresh(
        search: str | None, theme: str | None, _tick: int | None, sight: Any, shown: dict[str, Any] | None, zooms: Any
    ) -> dict[str, Any]:
        if theme is None:
            raise PreventUpdate  # the browser has not yet sent its theme
        grouped = ctx.outputs_grouping["parts"]
        panes = {name: [one["id"]["pane"] for one in grouped[name]] for name in PARTS}
        seen, kept = sight if isinstance(sight, list) else [], zooms if isinstance(zooms, dict) else {}
        return answer(desk, Page(_text(search), _text(theme) or "", _remembered(shown), panes, seen, kept))


def _text(value: Any) -> str | None:
    """Return a text, None for any other value: the browser is the owner's, but may send anything."""
    return value if isinstance(value, str) else None


def _remembered(shown: Any) -> dict[str, Any]:
    """Return the state that the page got with the last answer; {} if its types are wrong."""
    kinds: dict[str, Any] = {"rests": (int, float), "parts": dict, "behind": list, "head": dict}
    whole = isinstance(shown, dict) and all(isinstance(shown[n], kind) for n, kind in kinds.items() if n in shown)
    return shown if whole else {}


def _in_the_browser(app: Any, theme: str) -> None:
    app.clientside_callback(
        ClientsideFunction("neuraldbg", f"theme_{theme}"),
        Output("theme", "data"),
        Input("address", "pathname"),
    )
    app.clientside_callback(
        ClientsideFunction("neuraldbg", "title"),
        Output("title", "data"),
        Input("run", "children"),
        Input("tabs", "children"),
    )
    app.clientside_callback(
        ClientsideFunction("neuraldbg", "zoom"),
        Output("zooms", "data"),
        Input({"part": "figure", "pane": ALL}, "relayoutData"),
        State({"part": "figure", "pane": ALL}, "figure"),
        State("zooms", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(ClientsideFunction("neuraldbg", "watch"), Input("shown", "data"))
    every = (
        Input({"part": "figure", "pane": ALL}, "clickData"),
        Input({"part": "figure", "pane": ALL}, "relayoutData"),
        Input({"part": "network", "pane": ALL}, "tapNodeData"),
        Input("layer", "value"),
        Input("step", "value"),
        Input({"field": ALL}, "value"),
    )
    app.clientside_callback(
        ClientsideFunction("neuraldbg", "follow"),
        Output("address", "search"),
        *every,
        State({"part": "figure", "pane": ALL}, "figure"),
        State("shown", "data"),
        prevent_initial_call=True,
    )


HEAD = {
    "run": "children", "status": "children", "tabs": "children", "problems": "children", "range": "children",
    "clear": "children", "looking": "className", "link": "href",
}  # fmt: skip


@dataclass(frozen=True)
class Page:
    """A request of the browser: its address, and its present state."""

    search: str | None
    """Query string of the address."""
    theme: str
    """``light`` or ``dark``."""
    shown: dict[str, Any]
    """State that the page got with the last answer."""
    present: dict[str, list[str]]
    """Names of the panes that have a part in the browser, by part."""
    sight: Sequence[str]
    """Names of the panes in sight."""
    zooms: dict[str, Any]
    """Ranges that a person has zoomed to on value axes, by the axis's ``uirevision``."""


def answer(desk: Desk, page: Page) -> dict[str, Any]:
    """Return the changes for the browser. Raises PreventUpdate if there are none.

    Panes of a long run are drawn when they are in sight. Of the others one at a time is drawn: with each answer one
    that was never drawn, and while nothing else happens one that is out of date. Changes by the growth of the run alone
    wait until REST times the duration of the last drawing has passed: the watched training runs on the same machine.
    """
    began, shown = time.monotonic(), page.shown
    look = desk.look(page.search, page.theme)
    # ``fresh``: another tab or run, so that all panes are new. ``changed``: another address or a grown run.
    asked, grown = [page.search, page.theme], _moment(look)
    resting = 0 < shown.get("rests", 0) - began < LONGEST_REST
    fresh = look is not None and shown.get("place") != look.place
    changed = fresh or shown.get("asked") != asked or (shown.get("grown") != grown and not resting)
    result = _unchanged(page.present)
    if look is None:
        if not changed:
            raise PreventUpdate
        return {**result, "content": layout.nothing(), "shown": {"asked": asked, "grown": grown}}
    # Panes that are out of date, and those of them that were never drawn.
    behind = [pane.name for pane in look.tab.panes if changed or pane.name in shown.get("behind", ())]
    never = [name for name in behind if f"heading/{name}" not in shown.get("parts", {})]
    spare = [] if resting else never if changed else behind
    due = _due(look.tab, behind, page.sight, spare, fresh=fresh)
    if not (changed or due):
        raise PreventUpdate
    drawings = _drawn(look, due, page.zooms, began if fresh else None)
    head = _fill_head(result, desk, look, shown)
    parts, signed = {} if fresh else shown.get("parts", {}), signatures(drawings)
    if fresh:
        result["content"] = layout.frame(look.tab, drawings, look.scene.theme, look.place)
    else:
        new = {key for key, name in signed.items() if parts.get(key) != name}
        fill(drawings, new, page.present, result["parts"], look.scene.theme)
    drawn = {pane.name for pane in drawings}
    now = time.monotonic()
    result["shown"] = {
        **head,
        "asked": asked,
        "grown": grown if changed else shown.get("grown"),
        "rests": now + min(LONGEST_REST, REST * (now - began)),
        "place": look.place,
        "parts": {**parts, **signed},
        "behind": [name for name in behind if name not in drawn],
        "with": look.scene.beside.entry.key if look.scene.beside else None,
        "filter": look.scene.state.filter,
    }
    return result


def _due(tab: Tab, behind: Sequence[str], sight: Sequence[str], spare: Sequence[str], *, fresh: bool) -> list[Pane]:
    """Return the panes to draw now: those in sight that are out of date, and one of ``spare``."""
    if fresh:  # the panes in sight are not known yet, and text costs nothing
        return sorted(tab.panes, key=lambda pane: pane.part != "words")
    names = {name for name in behind if name in sight} | set(spare[:1])
    return [pane for pane in tab.panes if pane.name in names]


def _drawn(look: Look, due: Sequence[Pane], zooms: dict[str, Any], began: float | None) -> dict[Pane, Drawing]:
    """Draw panes. For a new tab, which ``began`` at that monotonic time, stop after PATIENCE_S."""
    drawings: dict[Pane, Drawing] = {}
    history = look.scene.run.history
    patience = PATIENCE_S if len(history) * history.sites < LARGE else 0.0
    for pane in due:
        if pane.part != "words" and began is not None and time.monotonic() - began > patience:
            break
        drawing = draw(look.scene, pane)
        drawings[pane] = replace(drawing, content=zoomed(drawing.content, zooms))
    return drawings


def _moment(look: Look | None) -> list[Any]:
    """Return values that change when the content of a tab can have changed."""
    if look is None:
        return []
    entry = look.scene.entry
    on_runs = signature([repr(e) for e in look.scene.entries]) if look.tab.id == "runs" else len(look.scene.entries)
    other = look.scene.beside
    beside = [other.entry.key, other.entry.label, other.moment.version, other.key] if other else []
    return [
        look.scene.moment.version,
        look.scene.moment.judged,
        entry.state,
        entry.problem,
        entry.label,
        on_runs,
        beside,
    ]


def _unchanged(present: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "shown": {},
        "content": no_update,
        "head": dict.fromkeys(HEAD, no_update),
        "options": no_update,
        "layer": no_update,
        "step": no_update,
        "parts": {name: [no_update] * len(panes) for name, panes in present.items()},
    }


def _fill_head(result: dict[str, Any], desk: Desk, look: Look, shown: dict[str, Any]) -> dict[str, Any]:
    """Put the changed parts above the panes into the result. Return their signatures for the next request."""
    scene = look.scene
    head = {
        "run": layout.run_name(scene),
        "status": layout.status(scene),
        "tabs": layout.tabs(desk.tabs, look.tab, scene),
        "problems": [layout.problem(p) for p in scene.problems],
        "range": layout.range_of(scene),
        "clear": layout.clear_of(scene),
        "looking": layout.looking(look.tab),
        "link": layout.link_of(look.tab, scene),
    }
    options = layout.layer_options(scene)
    signed = {name: signature(value) for name, value in {**head, "options": options}.items()}
    known = shown.get("head", {})
    result["head"] |= {name: value for name, value in head.items() if known.get(name) != signed[name]}
    if known.get("options") != signed["options"]:
        result["options"] = options
    looked = [scene.layer, scene.step]
    if shown.get("looked") != looked:
        result["layer"], result["step"] = scene.layer, "" if scene.step is None else str(scene.step)
    return {"head": signed, "looked": looked}
