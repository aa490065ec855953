"""The callbacks: which change in the browser asks what, and where the answer goes.

``refresh`` runs here, all others in the browser (``assets/page.js``), where a click needs no answer of ours.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, get_args

from dash import ALL, ClientsideFunction, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from neuraldbg.show.dashboard.page import shell
from neuraldbg.show.dashboard.page.desk import Desk, Look, draw, signature
from neuraldbg.show.dashboard.page.tab import Part
from neuraldbg.show.text import plain

if TYPE_CHECKING:
    from dash import Dash

    from neuraldbg.show.dashboard.page.tab import Drawing


PARTS: dict[str, tuple[str, Any]] = {
    "heading": ("children", lambda d: plain(d.title)),
    "controls": ("children", lambda d: d.controls),
    "body": ("className", shell.shown),
    "beside": ("children", shell.beside),
    "figure": ("figure", shell.figure_of),
    "network": ("elements", lambda d: d.content or []),
    "words": ("children", lambda d: d.content),
}
"""The parts of a pane: the property that changes, and what it becomes."""


REST, LONGEST_REST = 4, 30
"""A page that took a second to draw is drawn again after four more, a fifth of one core; seconds at most."""


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
            "parts": {name: Output({"part": name, "pane": ALL}, prop) for name, (prop, _) in PARTS.items()},
        },
        {
            "search": Input("address", "search"),
            "theme": Input("theme", "data"),
            "_tick": Input("tick", "n_intervals"),
            "shown": State("shown", "data"),
            "zooms": State("zooms", "data"),
        },
    )
    def refresh(
        search: str | None, theme: str | None, _tick: int | None, shown: dict[str, Any] | None, zooms: Any
    ) -> dict[str, Any]:
        if theme is None:
            raise PreventUpdate  # the browser has not said yet whether it is dark
        panes = _present()
        result = answer(desk, search, theme, shown or {}, panes)
        figures = zip(panes["figure"], result["parts"]["figure"], strict=True)
        result["parts"]["figure"] = [zoomed(figure, (zooms or {}).get(pane)) for pane, figure in figures]
        return result


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


def zoomed(figure: Any, zoom: Any) -> Any:
    """Return a figure with the values that a person has zoomed to, if it still shows what that was done to.

    Dash writes a zoom into the figure that it holds, after which plotly's own ``uirevision`` takes it for ours.
    """
    if not isinstance(figure, dict) or not isinstance(zoom, dict):
        return figure
    axis = figure["layout"].get("yaxis", {})
    ends = zoom.get("range")
    if zoom.get("of") != axis.get("uirevision") or not isinstance(ends, list) or len(ends) != 2:
        return figure
    if not all(isinstance(end, (int, float)) and math.isfinite(end) for end in ends):
        return figure
    return {**figure, "layout": {**figure["layout"], "yaxis": {**axis, "range": ends, "autorange": False}}}


HEAD = {
    "run": "children", "status": "children", "tabs": "children", "problems": "children", "range": "children",
    "clear": "children",
}  # fmt: skip


def _present() -> dict[str, list[str]]:
    """The panes that the browser has, by part, in the order in which it expects their answers."""
    grouped = ctx.outputs_grouping["parts"]
    return {name: [one["id"]["pane"] for one in grouped[name]] for name in PARTS}


def answer(
    desk: Desk, search: str | None, theme: str, shown: dict[str, Any], present: dict[str, list[str]]
) -> dict[str, Any]:
    """Return what the browser must change. PreventUpdate where that is nothing.

    What a run's growth alone changes waits until REST times the time it took to draw last has passed: the training
    that is watched runs on the same machine.
    """
    began = time.monotonic()
    look = desk.look(search, theme)
    asked, grown = [search, theme], _moment(look)
    resting = 0 < shown.get("rests", 0) - began < LONGEST_REST
    if shown.get("asked") == asked and (shown.get("grown") == grown or resting):
        raise PreventUpdate
    result = _unchanged(present)
    if look is None:
        result["content"] = shell.nothing()
        result["shown"] = {"asked": asked, "grown": grown}
        return result
    drawings = {pane.name: draw(look.scene, pane) for pane in look.tab.panes}
    head = _fill_head(result, desk, look, shown)
    fresh = shown.get("place") != look.place
    if fresh:
        result["content"] = shell.frame(look.tab, list(drawings.values()), look.scene.theme)
        present = {name: _with(name, look) for name in PARTS}
    parts = _fill_parts(drawings, present, shown.get("parts", {}), None if fresh else result["parts"])
    now = time.monotonic()
    rests = now + min(LONGEST_REST, REST * (now - began))
    other = look.scene.beside.entry.key if look.scene.beside else None
    result["shown"] = {
        **head, "asked": asked, "grown": grown, "rests": rests, "place": look.place, "parts": parts, "with": other,
    }  # fmt: skip
    return result


def _with(part: str, look: Look) -> list[str]:
    """The panes of a tab that have a part: its own, and those that all of them have."""
    return [pane.name for pane in look.tab.panes if part == pane.part or part not in get_args(Part)]


def _fill_parts(
    drawings: dict[str, Drawing],
    panes: dict[str, list[str]],
    known: dict[str, str],
    changed: dict[str, list[Any]] | None,
) -> dict[str, str]:
    """Return the signatures of all parts; put those that the browser does not have into ``changed``."""
    signed = {}
    for name, (_, make) in PARTS.items():
        for i, pane in enumerate(panes[name]):
            if pane not in drawings:  # of a tab that the browser is about to leave
                continue
            value = make(drawings[pane])
            key = drawings[pane].key if name == "figure" else ""
            mine = signed[f"{name}/{pane}"] = signature(key or value)
            if changed is not None and known.get(f"{name}/{pane}") != mine:
                changed[name][i] = value
    return signed


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
        "run": shell.run_name(scene),
        "status": shell.status(scene),
        "tabs": shell.tabs(desk.tabs, look.tab, scene),
        "problems": [shell.problem(p) for p in scene.problems],
        "range": shell.range_of(scene),
        "clear": shell.clear_of(scene),
    }
    options = shell.layer_options(scene)
    signed = {name: signature(value) for name, value in {**head, "options": options}.items()}
    known = shown.get("head", {})
    result["head"] |= {name: value for name, value in head.items() if known.get(name) != signed[name]}
    if known.get("options") != signed["options"]:
        result["options"] = options
    looked = [scene.layer, scene.step]
    if shown.get("looked") != looked:
        result["layer"], result["step"] = scene.layer, "" if scene.step is None else str(scene.step)
    return {"head": signed, "looked": looked}
