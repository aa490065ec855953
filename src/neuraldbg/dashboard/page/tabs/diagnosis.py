"""The tab of the diagnosis: the verdict, the causes with their evidence, the causal chain, and supporting pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.dashboard.page.components import banner, go, layer_link, step_link
from neuraldbg.dashboard.page.figures import drawn
from neuraldbg.dashboard.page.network import connected
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.show.format.phrases import percent, statement
from neuraldbg.show.format.run_line import facts_line
from neuraldbg.show.format.safe_text import plain, sentence, shortest
from neuraldbg.show.views.moments import guilty_of

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns import Diagnosis, Hypothesis

MOST = 5
"""Causes that are shown with their evidence at most; the first is open."""
UNJUDGED = 12
"""Unjudged questions that are shown at most."""


def verdict(scene: Scene) -> Drawing:
    """Return verdict, summary and symptoms, with links to the selected layer and step."""
    said = scene.diagnosis
    told = said.summary.lower()
    symptoms = [html.Li(plain(s)) for s in said.symptoms if s.lower() not in told]
    answer = html.Div(
        [
            banner(said.verdict),
            html.P(plain(sentence(said.summary)), className="summary"),
            html.Ul(symptoms) if symptoms else None,
            _where(scene),
        ]
    )
    return Drawing("Verdict", answer)


def _where(scene: Scene) -> Any:
    """Return a sentence with links to the layer and the step that the pictures show; None if there are none."""
    if scene.layer is None and scene.step is None:
        return None
    own = scene.state.layer is None and scene.state.step is None
    charge = guilty_of(scene.diagnosis, {scene.layer} if scene.layer is not None else ())[1] or "it shows"
    words: list[Any] = [f"{charge[:1].upper()}{charge[1:]}: " if own else "You look at: "]
    if scene.layer is not None:
        words += ["layer ", layer_link(scene, scene.layer, scene.step)]
    if scene.step is not None:
        words += [" at step " if scene.layer is not None else "step ", step_link(scene, scene.step, scene.layer)]
    return html.P(words, className="where")


def causes(scene: Scene) -> Drawing:
    """Return the ranked causes, each with the evidence for and against it, and the fix."""
    found = scene.diagnosis.hypotheses
    if not found:
        why = (
            "Nothing is wrong as far as it was seen"
            if scene.diagnosis.verdict == "healthy"
            else "No cause is likely enough"
        )
        return Drawing("Causes", empty=f"{why}. What could not be judged stands below.")
    shown = [_cause(scene, cause, i) for i, cause in enumerate(found[:MOST])]
    notes = (f"{len(found) - MOST} less likely causes are left out: neuraldbg explain RUN --json - lists them.",)
    return Drawing("Causes", html.Div(shown), notes if len(found) > MOST else ())


def _cause(scene: Scene, cause: Hypothesis, at: int) -> html.Details:
    place: list[Any] = []
    if cause.layer is not None:
        place += [" · ", layer_link(scene, cause.layer, cause.step)]
    if cause.step is not None:
        place += [" · step ", step_link(scene, cause.step, cause.layer)]
    failure = cause.failure[:1].upper() + cause.failure[1:]
    body: list[Any] = [html.P(plain(sentence(f"{failure}, likely due to {cause.sentence}")))]
    body += [
        html.Ul([html.Li(plain(statement(e))) for e in cause.evidence if e.supports is supports], className=kind)
        for supports, kind in ((True, "for"), (False, "against"))
        if any(e.supports is supports for e in cause.evidence)
    ]
    if cause.equivalent:
        body.append(html.P(f"The evidence cannot tell it apart from: {plain(', '.join(cause.equivalent))}."))
    if cause.places:
        lines = [
            f"{shortest(spot.file)}:{spot.line}  {spot.code}".rstrip() + (f"  ({spot.what} here)" if spot.what else "")
            for spot in cause.places
        ]
        body.append(html.Pre(plain("\n".join(lines), keep="\n"), tabIndex=0))
    if cause.remedy.text:
        body.append(html.P([html.Strong("Fix: "), plain(sentence(cause.remedy.text))]))
    if cause.remedy.code:
        body.append(html.Pre(plain(cause.remedy.code.expandtabs(4), keep="\n"), className="code", tabIndex=0))
    head = [html.Strong(plain(cause.cause.replace("_", " "))), html.Span(f" {percent(cause.confidence)} sure"), *place]
    return html.Details([html.Summary(head), *body], open=at == 0, className="cause")


def chain(scene: Scene) -> Drawing:
    """Draw the causal chain as a graph."""
    return connected(scene, "chain", "How it came about")


def loss(scene: Scene) -> Drawing:
    """Draw the loss with the events."""
    return drawn(scene, "loss")


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
    """Draw the view for the first event of a layer; gradients of all layers if there is none."""
    name, choice = supporting(scene.diagnosis)
    return drawn(scene, name, **choice)


def supporting(diagnosis: Diagnosis) -> tuple[str, dict[str, str]]:
    """Return name and choice of the view that shows the first event of a layer; gradients of all layers if there is
    none.
    """
    hit = sorted((e for e in diagnosis.events if e.layer is not None), key=lambda e: e.first_step)
    for event in hit:
        for word, name, choice in SUPPORT:
            if word in event.kind:
                return name, dict(choice)
    return "heatmap", {"kind": "param_grad", "stat": "norm"}


def facts(scene: Scene) -> Drawing:
    """Return the facts of the run, and the questions that could not be judged."""
    said = scene.diagnosis
    body: list[Any] = [html.P(plain(facts_line(said.run, " · ")))]
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
        Pane("causes", "words", causes),
        Pane("support", "figure", support),
        Pane("chain", "network", chain),
        Pane("loss", "figure", loss),
        Pane("facts", "words", facts, wide=True),
    ),
)
