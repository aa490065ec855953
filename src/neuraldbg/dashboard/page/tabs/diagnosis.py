"""The tab of the diagnosis: the verdict, the causes with their evidence, the causal chain, and supporting pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.dashboard.page.components import banner, go, layer_link, step_link, title_of
from neuraldbg.dashboard.page.figures import curves, drawn, pictured
from neuraldbg.dashboard.page.network import connected
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.nouns.loss_names import loss_names
from neuraldbg.show.format.phrases import percent, statement
from neuraldbg.show.format.run_line import facts_line
from neuraldbg.show.format.safe_text import duration, number, plain, sentence, shortest
from neuraldbg.show.forms import Graph, Lines, Scale
from neuraldbg.show.views.moments import guilty_of

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns import CodeLine, Diagnosis, Hypothesis, RunRecord

LOSS, RATE = 300, 200
"""Heights of the two curves in pixels: both are on the first screen of a laptop."""
MOST = 5
"""Causes that are shown with their evidence at most; the first is open."""
ENDS = "Loss: from the first to the median of the last tenth, of at most 50; others: from the first to the last"
"""Note on the two values of each number."""
UNJUDGED = 12
"""Unjudged questions that are shown at most."""


def verdict(scene: Scene) -> Drawing:
    """Return verdict, summary and symptoms, with links to the selected layer and step."""
    said = scene.diagnosis
    symptoms = [html.Li(plain(s)) for s in said.untold]
    answer = html.Div(
        [
            banner(said.verdict),
            html.P(plain(sentence(said.headline or said.summary)), className="summary"),
            html.Ul(symptoms) if symptoms else None,
            _where(scene),
        ]
    )
    return Drawing("Verdict", answer)


def numbers(scene: Scene) -> Drawing:
    """Return the numbers of the run that are looked for first: loss, learning rate, steps and time."""
    run = scene.run
    found = {
        "Loss": _losses(run, scene.entry.losses),
        "Learning rate": _ends(run, "lr"),
        "Gradient norm": _ends(run, "grad_norm"),
        "Steps": f"{run.steps:,}" if run.steps else "",
        "Time": duration(float(run.history.time[-1])) if len(run.history) else "",
        "Optimizer": ", ".join(run.info.optimizers),
    }
    shown = [html.Div([html.Dt(name), html.Dd(plain(value))]) for name, value in found.items() if value]
    # The level of a noisy loss stands beside last values of other scalars: a reader must not take one for the other.
    notes = (ENDS,) if scene.entry.losses else ()
    return Drawing(
        "Numbers", html.Dl(shown, className="numbers"), notes, empty="" if shown else "No step was recorded yet."
    )


def _losses(run: RunRecord, levels: tuple[float, ...]) -> str:
    """Return the first value and the level at the end of each loss, with the names of several; ``levels`` are those of
    the verdict.
    """
    names = loss_names(run)
    values = [run.scalar("loss", stream).values for stream in names]
    lasts = levels if len(levels) == len(names) else [float(one[-1]) for one in values]
    said = [_span(float(one[0]), last) for one, last in zip(values, lasts, strict=True)]
    alone = tuple(names.values()) == ("loss",)
    return said[0] if alone else ", ".join(f"{name} {ends}" for name, ends in zip(names.values(), said, strict=True))


def _ends(run: RunRecord, name: str) -> str:
    """Return the first and the last value of a scalar, one pair for each optimizer; one alone if all are equal."""
    found = {}
    for stream in run.streams:
        values = run.scalar(name, stream).values
        if len(values):
            found[stream] = _span(float(values[0]), float(values[-1]))
    if len({*found.values()}) < 2:
        return next(iter(found.values()), "")
    return ", ".join(f"{said} (optimizer {stream})" for stream, said in found.items())


def _span(first: float, last: float) -> str:
    """Return two values as ``1.4 → 0.6``; the value alone if it stayed."""
    ends = number(first), number(last)
    return ends[0] if ends[0] == ends[1] else " → ".join(ends)


def _where(scene: Scene) -> Any:
    """Return a sentence with links to the layer and the step that the pictures show; None if there are none."""
    if scene.layer is None and scene.step is None:
        return None
    own = scene.state.layer is None and scene.state.step is None
    charge = guilty_of(scene.diagnosis, {scene.layer} if scene.layer is not None else ())[1] or "shown"
    words: list[Any] = [f"{charge[:1].upper()}{charge[1:]}: " if own else "Selected: "]
    if scene.layer is not None:
        words += ["layer ", layer_link(scene, scene.layer, scene.step)]
    if scene.step is not None:
        words += [" at step " if scene.layer is not None else "step ", step_link(scene, scene.step, scene.layer)]
    return html.P(words, className="where")


def causes(scene: Scene) -> Drawing:
    """Return the ranked causes, each with the evidence for and against it, and the fix."""
    found = scene.diagnosis.hypotheses
    if not found:
        why = "No fault was found" if scene.diagnosis.verdict == "healthy" else "No cause is likely enough"
        return Drawing(
            "Causes", empty=f"{why}." + " What could not be judged is listed below." * bool(scene.diagnosis.unjudged)
        )
    shown = [_cause(scene, cause, i) for i, cause in enumerate(found[:MOST])]
    notes = (f"{len(found) - MOST} less likely causes are left out: neuraldbg explain RUN --json - lists them.",)
    return Drawing("Causes", html.Div(shown), notes if len(found) > MOST else ())


def _cause(scene: Scene, cause: Hypothesis, at: int) -> html.Details:
    place: list[Any] = []
    if cause.layer is not None:
        place += [" · ", layer_link(scene, cause.layer, cause.step)]
    if cause.step is not None:
        place += [" · step ", step_link(scene, cause.step, cause.layer)]
    body: list[Any] = [html.P(plain(sentence(cause.sentence[:1].upper() + cause.sentence[1:])))]
    body += [
        html.Ul([html.Li(plain(statement(e))) for e in cause.evidence if e.supports is supports], className=kind)
        for supports, kind in ((True, "for"), (False, "against"))
        if any(e.supports is supports for e in cause.evidence)
    ]
    if cause.equivalent:
        body.append(html.P(f"Cannot be distinguished from {plain(', '.join(cause.equivalent))}."))
    if cause.places:
        body += [_place(spot) for spot in cause.places]
    if cause.remedy.text:
        body.append(html.P([html.Strong("Fix: "), plain(sentence(cause.remedy.text))]))
    if cause.remedy.code:
        body.append(html.Pre(plain(cause.remedy.code.expandtabs(4), keep="\n"), className="code", tabIndex=0))
    behind = html.Span([" · ", html.Code(plain(cause.cause)), " · "], className="soft")
    title = cause.title or title_of(cause.cause)
    head = [html.Strong(plain(title)), behind, html.Span(f"{percent(cause.confidence)} sure"), *place]
    return html.Details([html.Summary(head), *body], open=at == 0, className="cause")


def _place(spot: CodeLine) -> html.Figure:
    """Return a line of the user's code, below its file and number: beside a long path it would be out of sight."""
    where = f"{shortest(spot.file)}:{spot.line}" + (f" · {spot.what} here" if spot.what else "")
    code = [html.Pre(plain(spot.code.strip(), keep="\n"), tabIndex=0)] if spot.code.strip() else []
    return html.Figure([html.Figcaption(plain(where)), *code], className="place")


def chain(scene: Scene) -> Drawing:
    """Draw the causal chain as a graph; nothing for one of a single link, which the cause says already."""
    view = scene.view("chain")
    if isinstance(view, Graph) and len(view.links) <= 1:
        return Drawing("", empty=view.empty or "The chain has one link.")
    return connected(scene, "chain", "Causal chain")


def loss(scene: Scene) -> Drawing:
    """Draw the loss with the events."""
    return curves(scene, scene.view("loss"), height=LOSS)


def learning_rate(scene: Scene) -> Drawing:
    """Draw the learning rate over the same steps as the loss."""
    if "lr" not in scene.run.history.scalars:
        return Drawing("", empty="No learning rate was recorded.")
    view = scene.view("series", stat="lr")
    if isinstance(view, Lines):
        lines = tuple(replace(line, name=line.name.removeprefix("lr, ")) for line in view.lines)
        view = replace(view, lines=lines, y=Scale("learning rate"), marks=())
    return pictured(scene, view, title="Learning rate", height=RATE)


SUPPORT: tuple[tuple[str, str, dict[str, str]], ...] = (
    # (part of an event's kind, view, choice)
    ("nonfinite", "heatmap", {"stat": "nonfinite", "kind": "activation"}),
    ("gradient", "heatmap", {"kind": "param_grad", "stat": "norm"}),
    ("dead", "heatmap", {"kind": "activation", "stat": "dead"}),
    ("saturation", "heatmap", {"kind": "activation", "stat": "saturated"}),
    ("activation", "heatmap", {"kind": "activation", "stat": "rms"}),
    ("update", "updates", {}),
    ("unchanged", "updates", {}),
)


def support(scene: Scene) -> Drawing:
    """Draw the view for the first event of a layer that the cause explains, else the gradients of all layers."""
    name, choice = supporting(scene.diagnosis)
    return drawn(scene, name, **choice)


def supporting(diagnosis: Diagnosis) -> tuple[str, dict[str, Any]]:
    """Return name and choice of the view that shows the first event of a layer that the first cause explains; gradients
    of all layers if there is none.
    """
    for event in diagnosis.effects:
        if event.layer is None:
            continue
        for word, name, choice in SUPPORT:
            if word in event.kind:
                return name, dict(choice)
    return "heatmap", {"kind": "param_grad", "stat": "norm"}


def facts(scene: Scene) -> Drawing:
    """Return the facts of the run, and the questions that could not be judged."""
    said = scene.diagnosis
    body: list[Any] = [html.P(plain(facts_line(said.run, " · ")))]
    if schedules := said.run.get("schedules"):
        body.append(html.Ul([html.Li(plain(sentence(one[:1].upper() + one[1:]))) for one in schedules]))
    if said.observations:
        body += [html.H3("Also unusual"), html.Ul([html.Li(plain(str(one))) for one in said.observations])]
    if said.unjudged:
        items = [html.Li(plain(f"{one.what}: {one.reason}")) for one in said.unjudged[:UNJUDGED]]
        body += [html.H3("Not judged"), html.Ul(items)]
    more = len(said.unjudged) - UNJUDGED
    if said.hypotheses:
        body.append(html.P(f"neuraldbg causes {said.hypotheses[0].cause} explains the first cause."))
    body.append(html.P(go("All events", scene.link(tab="anomalies"))))
    return Drawing("The run", html.Div(body), (f"{more} more could not be judged.",) if more > 0 else ())


TAB = Tab(
    "diagnosis",
    "Diagnosis",
    (
        Pane("verdict", "words", verdict, wide=True),
        Pane("numbers", "words", numbers, wide=True),
        Pane("causes", "words", causes, side="left"),
        Pane("loss", "figure", loss, side="right"),
        Pane("learning_rate", "figure", learning_rate, side="right"),
        Pane("chain", "network", chain, side="left"),
        Pane("support", "figure", support, side="right"),
        Pane("facts", "words", facts, side="left"),
    ),
)
