"""The callbacks: which change in the browser asks what, and where the answer goes.

``refresh`` runs here, all others in the browser (``assets/page.js``), where a click needs no answer of ours.
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
"""A page that took a second to draw is drawn again after four more, a fifth of one core; seconds at most."""
PATIENCE_S, LARGE = 0.1, 100_000
"""How long a new tab is drawn in its first answer; what is left comes in the next, in sight first. Of a record that
holds so many tables of sites, or more, the words come first of all: one figure would take as long as they do.
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
            raise PreventUpdate  # the browser has not said yet whether it is dark
        grouped = ctx.outputs_grouping["parts"]
        panes = {name: [one["id"]["pane"] for one in grouped[name]] for name in PARTS}
        seen, kept = sight if isinstance(sight, list) else [], zooms if isinstance(zooms, dict) else {}
        return answer(desk, Page(_text(search), _text(theme) or "", _remembered(shown), panes, seen, kept))


def _text(value: Any) -> str | None:
    """Return a text, None for what is none: the browser is the owner's, but what it sends may be anything."""
    return value if isinstance(value, str) else None


def _remembered(shown: Any) -> dict[str, Any]:
    """Return what the page was told to remember; nothing where it is not of the types that it was told."""
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
    "clear": "children",
}  # fmt: skip


@dataclass(frozen=True)
class Page:
    """What the browser has, and what it asks for."""

    search: str | None
    """The query of the address."""
    theme: str
    shown: dict[str, Any]
    """What the last answer told it to remember."""
    present: dict[str, list[str]]
    """The panes of each part that it has."""
    sight: Sequence[str]
    """The panes that can be seen."""
    zooms: dict[str, Any]
    """What a person has zoomed to along the values, by what is shown there."""


def answer(desk: Desk, page: Page) -> dict[str, Any]:
    """Return what the browser must change. PreventUpdate where that is nothing.

    A long run's panes are drawn when they are in sight; the others when they come into it, or one by one: what was
    never drawn with each answer, what was drawn before while nothing else happens.
    What a run's growth alone changes waits until REST times the time it took to draw last has passed: the training
    that is watched runs on the same machine.
    """
    began, shown = time.monotonic(), page.shown
    look = desk.look(page.search, page.theme)
    asked, grown = [page.search, page.theme], _moment(look)
    resting = 0 < shown.get("rests", 0) - began < LONGEST_REST
    fresh = look is not None and shown.get("place") != look.place
    changed = fresh or shown.get("asked") != asked or (shown.get("grown") != grown and not resting)
    result = _unchanged(page.present)
    if look is None:
        if not changed:
            raise PreventUpdate
        return {**result, "content": layout.nothing(), "shown": {"asked": asked, "grown": grown}}
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
    }
    return result


def _due(tab: Tab, behind: Sequence[str], sight: Sequence[str], spare: Sequence[str], *, fresh: bool) -> list[Pane]:
    """Return the panes to draw now, of those whose pictures are behind; of those in no hurry one."""
    if fresh:  # nobody knows yet what will be in sight, and words cost nothing
        return sorted(tab.panes, key=lambda pane: pane.part != "words")
    names = {name for name in behind if name in sight} | set(spare[:1])
    return [pane for pane in tab.panes if pane.name in names]


def _drawn(look: Look, due: Sequence[Pane], zooms: dict[str, Any], began: float | None) -> dict[Pane, Drawing]:
    """Draw panes; of a tab that has just ``begun``, no more than can be waited for."""
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
    """Put what is different above the panes into the result; return what is shown there now."""
    scene = look.scene
    head = {
        "run": layout.run_name(scene),
        "status": layout.status(scene),
        "tabs": layout.tabs(desk.tabs, look.tab, scene),
        "problems": [layout.problem(p) for p in scene.problems],
        "range": layout.range_of(scene),
        "clear": layout.clear_of(scene),
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
