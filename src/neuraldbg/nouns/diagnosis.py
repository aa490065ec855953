"""The diagnosis of a run: verdict, ranked hypotheses with their evidence, causal chain, and its HTML for a notebook."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.html import DIM, div, listed, number_text, percent, safe, shown
from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns.event import Event

SCHEMA = "neuraldbg.diagnosis/1"
VERDICTS = ("healthy", "inconclusive", "suspect", "failing")
"""Verdicts from best to worst, in the order of ``--fail-on``."""


@dataclass(frozen=True)
class Unjudged:
    """A question that could not be judged, with the reason. It is always shown, and never raised."""

    what: str
    reason: str


@dataclass(frozen=True)
class Evidence:
    """One measured statement for or against a hypothesis."""

    statement: str
    supports: bool
    weight: float = 1.0
    """Log-odds, always positive; ``supports`` is the direction."""
    value: float | str | None = None
    """Measured value, or the name of the object found. None if there is none."""
    threshold: float | str | None = None
    """Threshold for the value. None if there is none."""


@dataclass(frozen=True)
class Remedy:
    """The advice for a cause, in words and as code that fits the user's model."""

    text: str
    code: str = ""


@dataclass(frozen=True)
class CodeLine:
    """A line of the user's code, and the operation that was observed on it."""

    file: str
    line: int
    code: str = ""
    """Text of the line; "" if the source was not available."""
    what: str = ""
    """Observed operation on the line: ``the backward pass is called``. The fault itself may be elsewhere."""


@dataclass(frozen=True)
class Hypothesis:
    """A cause that may explain the run, with its evidence."""

    cause: str
    """Id in the taxonomy: ``neuraldbg causes ID`` shows its page."""
    category: str
    confidence: float
    """Probability that this is a cause of the failure."""
    sentence: str
    """One sentence that needs no other knowledge of the run, with layer and step."""
    layer: str | None = None
    """Path of the layer. None if the cause is in the training loop."""
    step: int | None = None
    """First step at which the cause had an effect. None if it is not known."""
    evidence: tuple[Evidence, ...] = ()
    equivalent: tuple[str, ...] = ()
    """Causes that the evidence cannot tell apart from this one."""
    remedy: Remedy = field(default_factory=lambda: Remedy(""))
    verification: Mapping[str, Any] | None = None
    """Result of a replay with only this cause removed. None if there was none."""
    rank: int = 0
    failure: str = "training failure"
    """Result of the cause, for the sentence: "gradient vanishing", "loss divergence"."""
    explains: tuple[str, ...] = ()
    """Kinds of events that follow from the cause."""
    places: tuple[CodeLine, ...] = ()
    """Lines of the user's code to check first; the fault is there or near."""

    def __str__(self) -> str:
        where = f" originated in layer '{self.layer}'" if self.layer else " originated in the training loop"
        when = f" at step {self.step}" if self.step is not None else ""
        failure = self.failure[:1].upper() + self.failure[1:]
        return f"{failure}{where}{when}, likely due to {self.sentence} (confidence: {self.confidence:.2f})"

    @shown
    def _repr_html_(self) -> str:
        return _hypothesis_html(self)


@dataclass(frozen=True)
class ChainNode:
    """A node of the causal chain: a cause, an event, or the symptom that the user saw."""

    id: str
    role: str
    """``cause``, ``event`` or ``symptom``."""
    label: str
    layer: str | None = None
    step: int | None = None


@dataclass(frozen=True)
class ChainEdge:
    """An edge of the causal chain: the source node led to the target node."""

    source: str
    target: str
    why: str = ""
    """``data flow``, ``time`` or ``cause``."""


@dataclass(frozen=True)
class Chain:
    """The causal chain of a failure, in the order of data flow and time."""

    nodes: tuple[ChainNode, ...] = ()
    edges: tuple[ChainEdge, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes)


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a run. ``to_dict()`` is the JSON of ``diagnosis.json``."""

    verdict: str
    """One of VERDICTS."""
    summary: str
    run: Mapping[str, Any] = field(default_factory=dict)
    symptoms: tuple[str, ...] = ()
    """Symptoms that a person would have seen, one phrase each."""
    events: tuple[Event, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    """Hypotheses, the most likely first."""
    chain: Chain = field(default_factory=Chain)
    unjudged: tuple[Unjudged, ...] = ()

    def __str__(self) -> str:
        causes = (f"{h.rank}. {h.cause}: {h}\n   {h.remedy.text}" for h in self.hypotheses)
        return "\n".join([f"{self.verdict.upper()}: {self.summary}", *causes])

    @shown
    def _repr_html_(self) -> str:
        return diagnosis_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as strict JSON values (schema ``neuraldbg.diagnosis/1``)."""
        body = jsonable(self)
        assert isinstance(body, dict)
        return {"schema": SCHEMA, **body}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the diagnosis as strict JSON text."""
        return json.JSONEncoder(indent=indent, allow_nan=False).encode(self.to_dict())

    def worse_or_equal(self, verdict: str) -> bool:
        """Return True if the verdict is at least as bad as ``verdict``."""
        return VERDICTS.index(self.verdict) >= VERDICTS.index(verdict)


# ---------------------------------------------------------------- as HTML, for notebooks

VERDICT_COLOUR = {"failing": "#D55E00", "suspect": "#E69F00", "healthy": "#009E73", "inconclusive": "#56B4E9"}
"""Colour of the edge beside each verdict (Okabe and Ito's, visible on light and dark ground); the word says the same.
"""
VERDICT_STYLE = "border-left:5px solid;padding-left:.6em;margin:.3em 0"


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """Render a diagnosis as HTML: verdict, summary, symptoms, causes, chain, and all questions that were not judged."""
    colour = VERDICT_COLOUR.get(diagnosis.verdict, "currentColor")
    head = f"<b>{safe(diagnosis.verdict.upper())}</b>: {safe(diagnosis.summary)}"
    parts = [
        f'<p style="{VERDICT_STYLE};border-color:{colour}">{head}</p>',
        listed(safe(symptom) for symptom in diagnosis.symptoms),
    ]
    if diagnosis.hypotheses:
        parts.append("<h4>Likely causes</h4>")
    for i, hypothesis in enumerate(diagnosis.hypotheses):
        opened = " open" if i == 0 else ""
        title = f"<b>{safe(hypothesis.cause)}</b> {percent(hypothesis.confidence)}{_place(hypothesis)}"
        parts.append(f"<details{opened}><summary>{title}</summary>{_body(hypothesis)}</details>")
    parts.append(_chain(diagnosis.chain))
    if diagnosis.unjudged:
        items = listed(f"{safe(one.what)}: {safe(one.reason)}" for one in diagnosis.unjudged)
        parts.append(f"<details><summary>Not judged ({len(diagnosis.unjudged)})</summary>{items}</details>")
    return div("".join(parts))


def _hypothesis_html(hypothesis: Hypothesis) -> str:
    """Render one hypothesis as HTML, with its evidence and its fix."""
    title = f"<b>{safe(hypothesis.cause)}</b> {percent(hypothesis.confidence)}{_place(hypothesis)}"
    return div(f'<p style="margin:.3em 0">{title}</p>{_body(hypothesis)}')


def _body(hypothesis: Hypothesis) -> str:
    failure = hypothesis.failure[:1].upper() + hypothesis.failure[1:]
    parts = [f"<p>{safe(failure)}, likely due to {safe(hypothesis.sentence)}</p>"]
    parts += [
        listed(
            f"<code>{safe(f'{p.file}:{p.line}')}</code> <code>{safe(p.code)}</code>"
            + (f" ({safe(p.what)} here)" if p.what else "")
            for p in hypothesis.places
        )
    ]
    parts.append(listed(_statement(one) for one in sorted(hypothesis.evidence, key=lambda one: not one.supports)))
    if hypothesis.equivalent:
        parts.append(f"<p>Cannot be told apart from {safe(', '.join(hypothesis.equivalent))}.</p>")
    if hypothesis.verification:
        tried = (f"{safe(key)}: {safe(number_text(value))}" for key, value in hypothesis.verification.items())
        parts.append(f"<p>Tried:</p>{listed(tried)}")
    if hypothesis.remedy.text:
        parts.append(f"<p><b>Fix:</b> {safe(hypothesis.remedy.text)}</p>")
    if hypothesis.remedy.code:
        lines = hypothesis.remedy.code.strip("\n").expandtabs(4).split("\n")
        parts.append(f"<pre>{'<br>'.join(safe(line) for line in lines)}</pre>")
    return f'<div style="margin-left:1.2em">{"".join(parts)}</div>'


def _statement(evidence: Evidence) -> str:
    named = (("measured", evidence.value), ("judged against", evidence.threshold))
    known = isinstance(evidence.value, float) or evidence.value is None  # other values count or name the items listed
    numbers = [f"{name} {number_text(value)}" for name, value in named if known and isinstance(value, (int, float))]
    measured = f' <span style="{DIM}">[{safe(", ".join(numbers))}]</span>' if numbers else ""
    return f"<b>{'for' if evidence.supports else 'against'}</b>: {safe(evidence.statement)}{measured}"


def _chain(chain: Chain) -> str:
    if not chain:
        return ""
    items = []
    for node in chain.nodes:
        where = [part for part in (node.layer, None if node.step is None else f"step {node.step:,}") if part]
        reason = next((edge.why for edge in chain.edges if edge.target == node.id and edge.why), "")
        after = f' <span style="{DIM}">{safe(", ".join([*where, *([f"by {reason}"] if reason else [])]))}</span>'
        items.append(f"{safe(node.role)}: {safe(node.label)}{after}")
    return f"<h4>How it came about</h4>{listed(items, 'ol')}"


def _place(hypothesis: Hypothesis) -> str:
    parts = [safe(hypothesis.layer)] if hypothesis.layer else []
    parts += [f"step {hypothesis.step:,}"] if hypothesis.step is not None else []
    return f' <span style="{DIM}">{", ".join(parts)}</span>' if parts else ""
