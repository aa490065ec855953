"""The layout around the panes: the head with the run and its state, the tabs, the selection, and the frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import dash_cytoscape as cytoscape
from dash import dcc, html

from neuraldbg.dashboard.page.components import aria, data, go
from neuraldbg.dashboard.page.network import height_of, stylesheet
from neuraldbg.dashboard.page.tab import Drawing
from neuraldbg.show.format.safe_text import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.dashboard.page.tab import Pane, Tab
    from neuraldbg.dashboard.settings import DashboardSettings

TITLE = "NeuralDBG"
INDEX = """<!DOCTYPE html>
<html lang="en" data-theme="THEME">
<head>
{%metas%}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="SCHEME">
<title>{%title%}</title>
{%favicon%}
{%css%}
</head>
<body>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>
"""
"""Dash's own HTML page, with a language and a theme."""
GRAPH: Any = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "toImage"], "scrollZoom": False}
STANDS = {
    "completed": "finished",
    "raised": "crashed",
    "interrupted": "interrupted",
    "halted": "halted",
    "running": "running",
    "killed": "killed, or silent for long",
    "unreadable": "cannot be read",
}
"""Words for the state of a run."""

LOST = (
    "The dashboard has ended, or cannot be reached: this page shows the last state. "
    "neuraldbg dashboard RUN opens the run again."
)
"""Sentence of the page when the server does not answer any more."""
COPY = "Copies the address of what is shown: run, tab, layer, step, range and smoothing"
LONGEST_FILTER = 200
"""Characters of a filter at most."""
SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
PADDING = 34
"""Pixels around a graph."""
WAITING = Drawing("…", content=None)
"""Drawing of a pane that is drawn once it comes into sight."""


def layout(settings: DashboardSettings, *, stops: bool = False) -> html.Div:
    """Return the parts of the page that all tabs share; they are empty until the first answer. With ``stops`` there is
    room for the buttons by which the page stops the training.
    """
    tools = [
        html.A("Copy link", id="link", className="tool", title=COPY),
        html.Button("Dark", id="themes", className="tool", title="Change between light and dark"),
    ]
    return html.Div(
        [
            dcc.Location(id="address", refresh=False),
            dcc.Interval(id="tick", interval=round(1000 * settings.refresh_rate)),
            dcc.Store(id="theme"),
            dcc.Store(id="shown"),
            dcc.Store(id="title"),
            dcc.Store(id="zooms", data={}),
            dcc.Store(id="sight"),
            html.Header(
                [
                    html.Strong(TITLE, className="brand"),
                    html.Div(id="run", className="run"),
                    html.P(id="status", className="status", role="status"),
                    html.Div(tools, className="tools"),
                ]
            ),
            html.P(LOST, id="lost", role="alert", hidden=True),
            *([html.Div(id="stops")] if stops else []),  # filled by stops.js
            html.Nav(html.Ul(id="tabs"), **aria(label="Views of the run")),
            html.Div(id="problems", role="alert"),
            html.Div(_fields(), id="looking", className="looking"),
            html.Main(id="content"),
        ],
        id="page",
        className="page",
    )


def _fields() -> list[Any]:
    """Return the fields above the panes; ``looking`` names the tab, and the style sheet shows those that change it."""
    pick = dcc.Dropdown(id="layer", placeholder="any layer", clearable=True, className="pick")
    # A number field would have buttons, and reports text that is no number as NaN.
    step = dcc.Input(id="step", type="text", inputMode="numeric", debounce=True, placeholder="any")
    told: dict[str, Any] = {"data-longest": LONGEST_FILTER, "data-placeholder": "name, verdict or cause"}
    # page.js puts the field of the filter there: see filterField.
    words = html.Span(id="filter-room", className="dash-input-container", **told)
    return [
        html.Div([html.Label("Layer", htmlFor="layer"), pick], className="field"),
        html.Div([html.Label("Step", htmlFor="step"), step], className="field"),
        html.Span(id="range"),
        html.Span(id="clear"),
        html.Div([html.Label("Filter", htmlFor="filter"), words], className="field filter"),
    ]


def frame(tab: Tab, drawings: Mapping[Pane, Drawing], theme: str, place: str) -> html.Div:
    """Return the panes of a tab, with the drawings made so far; ``place`` is ``Look.place``."""
    groups: list[Any] = []
    for order, pane in enumerate(tab.panes):
        section = _pane(pane, drawings.get(pane, WAITING), theme, order)
        if pane.wide:
            groups.append(section)
            continue
        if not groups or not isinstance(groups[-1], list):
            groups.append([])
        groups[-1].append((pane.side or SIDES[len(groups[-1]) % 2], section))
    # Two stacks side by side, so that there is no gap below a short pane beside a tall one.
    stacks = [
        html.Div(
            [html.Div([section for side, section in group if side == at], className="stack") for at in SIDES],
            className="stacks",
            style=group[0][1].style,
        )
        if isinstance(group, list)
        else group
        for group in groups
    ]
    return html.Div(stacks, className="panes", **data(place=place, padding=str(PADDING)))


def named(part: str, pane: Pane | str) -> dict[str, str]:
    """Return the id of a part of a pane."""
    return {"part": part, "pane": pane if isinstance(pane, str) else pane.name}


def _pane(pane: Pane, drawing: Drawing, theme: str, order: int) -> html.Section:
    return html.Section(
        [
            html.H2(plain(drawing.title), id=named("heading", pane)),
            html.Div(drawing.controls, id=named("controls", pane), className="controls"),
            html.Div(inside(pane, drawing, theme), id=named("body", pane), className=room(drawing)),
            html.Div(beside(drawing), id=named("beside", pane)),
        ],
        className=f"pane {pane.part}{' wide' if pane.wide else ''}",
        style={"order": order},  # of the panes of both stacks, where a narrow page puts them one below the other
        **data(pane=pane.name),
    )


def inside(pane: Pane, drawing: Drawing, theme: str) -> Any:
    """Return the component that shows a drawing; None if there is nothing to show: an empty figure costs time, too."""
    if pane.part == "words":
        return html.Div(drawing.content, id=named("words", pane))
    if drawing.empty or drawing is WAITING:
        return None
    if pane.part == "figure":
        return dcc.Graph(
            id=named("figure", pane), figure=figure_of(drawing), config=GRAPH, responsive=True, className="graph"
        )
    return cytoscape.Cytoscape(
        id=named("network", pane),
        elements=drawing.content or [],
        layout={"name": "preset", "fit": True, "padding": PADDING},
        stylesheet=stylesheet(theme),
        className="network",
        style={"width": "100%", "height": f"{height_of(drawing)}px"},
        minZoom=0.1,
        maxZoom=1.25,
    )


def figure_of(drawing: Drawing) -> dict[str, Any]:
    """Return the figure of a drawing; an empty one if it has none."""
    return drawing.content or {"data": [], "layout": {"height": 80}}


def room(drawing: Drawing) -> str:
    """Return the CSS class of a pane's body: an empty one takes no room, a figure its height, in hundreds of pixels."""
    if drawing is WAITING:
        return "waiting"
    if drawing.empty:
        return "nothing"
    layout = drawing.content.get("layout", {}) if isinstance(drawing.content, dict) else {}
    return f"h{-(-int(layout['height']) // 100)}" if layout.get("height") else ""


def beside(drawing: Drawing) -> list[Any]:
    """Return the paragraphs below a pane: why it is empty, and how it was sampled."""
    empty = [html.P(plain(drawing.empty), className="empty")] if drawing.empty else []
    return [*empty, *(html.P(plain(note), className="note") for note in drawing.notes)]


def tabs(every: Sequence[Tab], chosen: Tab, scene: Scene) -> list[html.Li]:
    """Return the tabs as links."""
    return [html.Li(go(tab.title, scene.link(tab=tab.id), "page" if tab is chosen else "")) for tab in every]


def status(scene: Scene) -> str:
    """Return the status line: steps of the record and of the diagnosis, and the state of the run."""
    entry, run, judged = scene.entry, scene.run, scene.moment.judged
    far = f"{run.steps:,} step{'' if run.steps == 1 else 's'} recorded"
    behind = "diagnosis up to date" if judged >= run.steps else f"diagnosis of the first {judged:,}"
    why = entry.problem or run.info.outcome.message
    stands = STANDS.get(entry.state, entry.state) + (f": {why}" if why else "")
    return plain(f"{far} · {behind} · {stands}")


def run_name(scene: Scene) -> list[Any]:
    """Return the name of the run, with a link to the others."""
    others = len(scene.entries) - 1
    name = html.Span(plain(scene.entry.label), className="run-name")
    noted = [f" · {plain(scene.run.info.note)}"] if scene.run.info.note else []
    if not others:
        return [name, *noted]
    return [name, *noted, go(f"{others} other run{'' if others == 1 else 's'}", scene.link(tab="runs"))]


def layer_options(scene: Scene) -> list[dict[str, str]]:
    """Return the layers to choose from, in the order of their calls."""
    return [{"label": plain(layer.path) or "(model)", "value": layer.path} for layer in scene.run.layout.layers]


def range_of(scene: Scene) -> list[Any]:
    """Return the range of steps that is zoomed into, with a link to all steps; [] if there is none."""
    first, last = scene.state.first, scene.state.last
    if first is None and last is None:
        return []
    words = f"steps {first or 0:,} to {'the end' if last is None else f'{last:,}'}"
    return [words, " ", go("show all steps", scene.link(first=None, last=None))]


def clear_of(scene: Scene) -> list[Any]:
    """Return a link that removes layer and step from the address, or a word that they come from the diagnosis."""
    if scene.state.layer is None and scene.state.step is None:
        return ["chosen by the diagnosis"] if scene.layer is not None or scene.step is not None else []
    return [go("back to the layer and step of the diagnosis", scene.link(layer=None, step=None))]


def looking(tab: Tab) -> str:
    """Return the CSS class of the row of fields: each tab shows the fields that change it."""
    return f"looking {tab.id}"


def link_of(tab: Tab, scene: Scene) -> str:
    """Return the address of what is shown, with everything in it that is chosen by default."""
    return scene.link(run=scene.entry.key, tab=tab.id, layer=scene.layer, step=scene.step)


def nothing() -> html.Section:
    """Return the section that is shown if there is no run yet."""
    return html.Section(
        [
            html.H2("No run yet"),
            html.P(
                "No run has been recorded in this folder. It appears here as soon as one begins:", className="empty"
            ),
            html.Pre("neuraldbg run train.py", tabIndex=0),
        ],
        className="pane wide",
    )


def problem(sentence: str) -> html.P:
    """Return a paragraph about an ignored part of the address."""
    return html.P(plain(sentence))
