"""What the explain stage says: verdict, ranked hypotheses with their evidence, and the causal chain."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.html import diagnosis_html, hypothesis_html, shown
from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns.event import Event

SCHEMA = "neuraldbg.diagnosis/1"
VERDICTS = ("healthy", "inconclusive", "suspect", "failing")
"""From best to worst, as ``--fail-on`` orders them."""


@dataclass(frozen=True)
class Unjudged:
    """Something that could not be judged, and why. Said, never hidden, never raised."""

    what: str
    reason: str


@dataclass(frozen=True)
class Evidence:
    """One measured statement for or against a hypothesis."""

    statement: str
    supports: bool
    weight: float = 1.0
    """Log-odds that it adds (always positive; ``supports`` gives the direction)."""
    value: float | str | None = None
    """What was measured; a word is a name of what was found."""
    threshold: float | str | None = None
    """What the value is judged against."""


@dataclass(frozen=True)
class Remedy:
    """What to do, in words and as code that fits the user's model."""

    text: str
    code: str = ""


@dataclass(frozen=True)
class CodeLine:
    """A line of the user's code."""

    file: str
    line: int
    code: str = ""
    """The line itself, empty where the source was not at hand."""
    what: str = ""
    """What happens on it, as far as was seen: ``the backward pass is called``; the fault itself may be elsewhere."""


@dataclass(frozen=True)
class Hypothesis:
    """A cause that may explain the run."""

    cause: str
    """An id of the taxonomy: ``neuraldbg causes ID`` shows its page."""
    category: str
    confidence: float
    """Probability that this is a cause of what went wrong."""
    sentence: str
    """One sentence a stranger understands, with layer and step."""
    layer: str | None = None
    step: int | None = None
    """The first step at which the cause was at work."""
    evidence: tuple[Evidence, ...] = ()
    equivalent: tuple[str, ...] = ()
    """Causes that the evidence cannot tell apart from this one."""
    remedy: Remedy = field(default_factory=lambda: Remedy(""))
    verification: Mapping[str, Any] | None = None
    """The result of a replay with that one thing changed; None while none was made."""
    rank: int = 0
    failure: str = "training failure"
    """What it led to, for the sentence: "gradient vanishing", "loss divergence"."""
    explains: tuple[str, ...] = ()
    """Event kinds that follow from it."""
    places: tuple[CodeLine, ...] = ()
    """Lines of the user's code to look at first; the fault is there or near."""

    def __str__(self) -> str:
        where = f" originated in layer '{self.layer}'" if self.layer else " originated in the training loop"
        when = f" at step {self.step}" if self.step is not None else ""
        failure = self.failure[:1].upper() + self.failure[1:]
        return f"{failure}{where}{when}, likely due to {self.sentence} (confidence: {self.confidence:.2f})"

    _repr_html_ = shown(hypothesis_html)


@dataclass(frozen=True)
class ChainNode:
    """A point of the causal chain: a cause, an event, or the symptom that the user saw."""

    id: str
    role: str
    """``cause``, ``event`` or ``symptom``."""
    label: str
    layer: str | None = None
    step: int | None = None


@dataclass(frozen=True)
class ChainEdge:
    """One thing led to another."""

    source: str
    target: str
    why: str = ""
    """``data flow``, ``time`` or ``cause``."""


@dataclass(frozen=True)
class Chain:
    """The causal chain, in data-flow and time order."""

    nodes: tuple[ChainNode, ...] = ()
    edges: tuple[ChainEdge, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes)


@dataclass(frozen=True)
class Diagnosis:
    """The answer. ``to_dict()`` is the JSON of ``diagnosis.json``."""

    verdict: str
    """One of VERDICTS."""
    summary: str
    run: Mapping[str, Any] = field(default_factory=dict)
    symptoms: tuple[str, ...] = ()
    """What a person would have seen, one phrase each."""
    events: tuple[Event, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    """Most likely first."""
    chain: Chain = field(default_factory=Chain)
    unjudged: tuple[Unjudged, ...] = ()

    def __str__(self) -> str:
        causes = (f"{h.rank}. {h.cause}: {h}\n   {h.remedy.text}" for h in self.hypotheses)
        return "\n".join([f"{self.verdict.upper()}: {self.summary}", *causes])

    _repr_html_ = shown(diagnosis_html)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as strict JSON values (schema ``neuraldbg.diagnosis/1``)."""
        body = jsonable(self)
        assert isinstance(body, dict)
        return {"schema": SCHEMA, **body}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the diagnosis as JSON text that any parser takes."""
        return json.JSONEncoder(indent=indent, allow_nan=False).encode(self.to_dict())

    def worse_or_equal(self, verdict: str) -> bool:
        """Return True if the verdict is at least as bad as another."""
        return VERDICTS.index(self.verdict) >= VERDICTS.index(verdict)
