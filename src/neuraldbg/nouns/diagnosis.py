"""The diagnosis of a run: verdict, ranked hypotheses with their evidence, causal chain, and its HTML for a notebook."""

from __future__ import annotations

import json
import operator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.frozen import frozen
from neuraldbg.nouns.html import DIM, div, listed, number_text, percent, safe, shown
from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from neuraldbg.nouns.event import Event
    from neuraldbg.nouns.rank_state import RankState

SCHEMA = "neuraldbg.diagnosis/1"
UNUSUAL = 3
"""Observations that a screen shows."""
UNKNOWN = "unknown"
"""Cause of the hypothesis of a run that fails for none of the known causes; no id of the taxonomy."""
VERDICTS = ("healthy", "inconclusive", "suspect", "failing")
"""Verdicts from best to worst, in the order of ``--fail-on``."""


def layer_words(path: str | None, alias: str) -> str:
    """Format a layer for a sentence: ``'encoder.fc'``, ``'linear1' (0)`` where it has an alias; "" without a path."""
    if path is None:
        return ""
    return f"'{alias}' ({path})" if alias else f"'{path}'"


@frozen(kw_only=False)
class Unjudged:
    """A question that could not be judged, with the reason. It is always shown, and never raised."""

    what: str
    """Question, or part of the run, as a noun phrase: "single values of large tensors"."""
    reason: str
    """Reason, as a sentence without its full stop."""


AS_WRITTEN = "the run as it was written"
"""What is not judged where values were changed by hand at a stop: the reason says which."""


@frozen(kw_only=False)
class Evidence:
    """One measured statement for or against a hypothesis."""

    statement: str
    """Sentence with the measured numbers."""
    supports: bool
    """True if it speaks for the hypothesis, False if against."""
    weight: float = 1.0
    """Log-odds (natural logarithm), always positive; ``supports`` is the direction."""
    value: float | str | None = None
    """Measured value, or the name of the object found. None if there is none."""
    threshold: float | str | None = None
    """Threshold for the value. None if there is none."""


@frozen(kw_only=False)
class CodeLine:
    """A line of the user's code, and the operation that was observed on it."""

    file: str
    """Path of the file, as Python names it in a traceback."""
    line: int
    """Number of the line, from 1."""
    code: str = ""
    """Text of the line; "" if the source was not available."""
    what: str = ""
    """Observed operation on the line: ``the backward pass is called``. The fault itself may be elsewhere."""


@frozen(kw_only=False)
class Edit:
    """One change of the user's program; the edits of a remedy together apply it without a person."""

    how: str
    """``before`` or ``after``: the code is inserted there, as statements of the same block. ``arguments``: keyword
    arguments of the call on the line are set to those of the code, ``lr=0.001, weight_decay=0.0``."""
    at: str
    """Kind of the line, as in the PLACES fact: "forward", "backward", "step" or "optimizer"."""
    code: str
    """Python code, without indentation."""
    line: CodeLine | None = None
    """Line of the user's code. None if it is not known, or there are several."""


@frozen(kw_only=False)
class Remedy:
    """The advice for a cause, in words and as code that fits the user's model."""

    text: str
    """One or two sentences."""
    code: str = ""
    """Python code with the names and numbers of the run where they are known; "" if there is none."""
    edits: tuple[Edit, ...] = ()
    """The changes that apply the remedy by themselves; none if a person has to find the place."""

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"    {line}" for line in self.code.splitlines())])

    def __repr__(self) -> str:
        return f"<Remedy: {self}>"


@frozen(kw_only=False)
class Hypothesis:
    """A cause that may explain the run, with its evidence.

    >>> first = dbg.explain_failure()[0]
    >>> print(first.label)
    Gradients never cleared · missing_zero_grad
    >>> for evidence in first.evidence:
    ...     print("+" if evidence.supports else "-", evidence.statement)
    + ...
    """

    cause: str
    """Id in the taxonomy: ``neuraldbg causes ID`` shows its page. UNKNOWN if none of them explains the run."""
    category: str
    """Category in the taxonomy: ``architecture``, ``data``, ``loop``, ``loss``, ``optimisation`` or ``precision``."""
    confidence: float
    """Probability that this is a cause of the failure; 0 for UNKNOWN, which names none."""
    sentence: str
    """One sentence that needs no other knowledge of the run, with layer and step."""
    layer: str | None = None
    """Path of the layer. None if the cause is in the training loop."""
    step: int | None = None
    """First step at which the cause had an effect. None if it is not known."""
    evidence: tuple[Evidence, ...] = ()
    """Statements for and against it, as they were weighed."""
    equivalent: tuple[str, ...] = ()
    """Causes that the evidence cannot tell apart from this one."""
    remedy: Remedy = field(default_factory=lambda: Remedy(""))
    """Advice, in words and as code."""
    verification: Mapping[str, Any] | None = None
    """Result of a replay with only this cause removed. Always None so far: no replay is made yet."""
    rank: int = 0
    """Place among the hypotheses, from 1; 0 before they are ranked."""
    failure: str = "training failure"
    """Result of the cause, for the sentence: "gradient vanishing", "loss divergence"."""
    explains: tuple[str, ...] = ()
    """Kinds of events that follow from the cause."""
    places: tuple[CodeLine, ...] = ()
    """Lines of the user's code to check first; the fault is there or near."""
    title: str = ""
    """Name of the cause in a few words: "Softmax applied twice"; "" in a diagnosis made by an older version."""
    layer_alias: str = ""
    """Name of the layer by its type and order, ``linear1``, where its path is a number; else ""."""
    since: int | None = None
    """Last step before ``step`` at which the cause was known not to be at work, where no step between was read: it
    began between the two. None if ``step`` is exact, or nothing earlier was read."""

    ranks: tuple[int, ...] = ()
    """Ranks of the job on which the cause was found; empty if it is on all, or there is one process."""

    @property
    def label(self) -> str:
        """The title with the id behind: ``Softmax applied twice · double_softmax``; the id if there is no title."""
        return f"{self.title} · {self.cause}" if self.title else self.cause

    @property
    def place(self) -> str:
        """The layer as a user calls it, with its path beside it: ``'encoder.fc'``, ``'linear1' (0)``; else ""."""
        return layer_words(self.layer, self.layer_alias)

    def __str__(self) -> str:
        when = f" at step {self.step}" if self.step is not None else ""
        when = f" between steps {self.since} and {self.step}" if self.since is not None else when
        failure = self.failure[:1].upper() + self.failure[1:]
        if self.cause == UNKNOWN:
            where = f" in layer {self.place}" if self.layer else ""
            return f"{failure}{where}{when}, for {self.sentence}"
        where = f" originated in layer {self.place}" if self.layer else " originated in the training loop"
        return f"{failure}{where}{when}, likely due to {self.sentence} (confidence: {self.confidence:.2f})"

    @shown
    def _repr_html_(self) -> str:
        return _hypothesis_html(self)


@frozen(kw_only=False)
class ChainNode:
    """A node of the causal chain: a cause, an event, or the symptom that the user saw."""

    id: str
    """Name of the node, unique in its chain; edges refer to it."""
    role: str
    """``cause``, ``event`` or ``symptom``."""
    label: str
    """Words for the node: "exploding gradients in conv2"."""
    layer: str | None = None
    """Path of the layer. None if the node is about the whole run."""
    step: int | None = None
    """First step. None if it is not known."""
    layer_alias: str = ""
    """Name of the layer by its type and order, ``linear1``, where its path is a number; else ""."""
    since: int | None = None
    """Last step before ``step`` that was read and did not have it, where those between were not read; None if ``step``
    is exact."""

    @property
    def when(self) -> str:
        """The step in words: ``step 1702``, or ``between steps 1690 and 1702``; "" if it is not known."""
        if self.step is None:
            return ""
        return f"step {self.step}" if self.since is None else f"between steps {self.since} and {self.step}"

    def __str__(self) -> str:
        told = self.step is None or f"step {self.step}" in self.label
        where = f" in layer {layer_words(self.layer, self.layer_alias)}" if self.role == "cause" and self.layer else ""
        return f"{self.label}{where}" + ("" if told else f", {self.when}")


@frozen(kw_only=False)
class ChainEdge:
    """An edge of the causal chain: the source node led to the target node."""

    source: str
    """Id of the node that comes first."""
    target: str
    """Id of the node that follows from it."""
    why: str = ""
    """``data flow``, ``time`` or ``cause``."""


@frozen(kw_only=False)
class Chain:
    """The causal chain of a failure, in the order of data flow and time: a sequence of its links, the nodes.

    It prints as text, has a length, is false if it is empty, and gives one link by its index, from 0. Raises
    IndexError, which says how many links there are, for an index beyond them.

    >>> chain = dbg.diagnose().chain
    >>> print(chain[0].role, len(chain) > 1)
    cause True
    """

    nodes: tuple[ChainNode, ...] = ()
    """Links, causes first."""
    edges: tuple[ChainEdge, ...] = ()
    """Reasons why one link follows from another."""
    about: str = field(default="", compare=False)
    """Subject that was asked for; "" for the chain of the whole run."""

    def __bool__(self) -> bool:
        return bool(self.nodes)

    @property
    def worth_showing(self) -> bool:
        """Return True if the chain has more than one link, or leads from one cause to another: a cause and its symptom
        are shown without it.
        """
        return len(self.nodes) > 2 or any(node.id.startswith("effect:") for node in self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[ChainNode]:
        return iter(self.nodes)

    def __getitem__(self, at: int) -> ChainNode:
        at = operator.index(at)
        if not -len(self.nodes) <= at < len(self.nodes):
            message = f"the chain has {len(self.nodes)} links, so there is none at {at}: {self}"
            raise IndexError(message)
        return self.nodes[at]

    def __repr__(self) -> str:
        about = f" about {self.about!r}" if self.about else ""
        return f"<Chain{about}: {' -> '.join(map(str, self.nodes)) or 'nothing found'}>"

    def __str__(self) -> str:
        if not self.nodes:
            about = f" about {self.about}" if self.about else ""
            return f"no chain: nothing{about} was found in this run"
        if len(self.nodes) == 1:
            return f"{self.nodes[0]}: it stands alone, nothing else in this run follows from it or leads to it"
        why = {edge.target: edge.why for edge in self.edges}
        lines = [f"-> {node}" + (f" ({why[node.id]})" if why.get(node.id) else "") for node in self.nodes[1:]]
        return "\n".join([str(self.nodes[0]), *lines])

    @shown
    def _repr_html_(self) -> str:
        return div(_chain(self) or safe(str(self)))


@frozen(kw_only=False)
class Observation:
    """A number of the run that lies beyond those of 99% of the sound trainings of the corpus, and is no named cause's.

    It is no alarm, and no part of the verdict.
    """

    statement: str
    """Sentence with the measured number."""
    quantity: str
    """Name of the quantity: ``input.offset``."""
    value: float
    """Measured value."""
    limit: float
    """Value that 99% of the sound trainings keep: an upper limit, or a lower one where the value is below it."""
    trainings: int
    """Number of sound trainings of which the quantity was read."""
    beyond: float
    """Distance of the value beyond the limit over that of the limit from their median, of logarithms."""
    layer: str | None = None
    """Path of the layer. None if it is about the whole run."""
    step: int | None = None
    """Step of the reading. None if it is about the whole run."""

    def __str__(self) -> str:
        most = "most" if self.value > self.limit else "least"
        return f"{self.statement} (at {most} {number_text(self.limit)} in 99% of sound trainings)"


@frozen(kw_only=False)
class Diagnosis:
    """The diagnosis of a run. ``to_dict()`` is the JSON of ``diagnosis.json``.

    >>> diagnosis = run.diagnose()
    >>> print(diagnosis.verdict, diagnosis.hypotheses[0].cause)
    failing missing_zero_grad
    """

    verdict: str
    """``healthy``, ``inconclusive``, ``suspect`` or ``failing``, from best to worst."""
    summary: str
    """Verdict in a sentence or two."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Description of the run: script, models, optimizers, steps, outcome, coverage, ..."""
    symptoms: tuple[str, ...] = ()
    """Symptoms that a person would have seen, one phrase each."""
    events: tuple[Event, ...] = ()
    """Events, in order of first step."""
    hypotheses: tuple[Hypothesis, ...] = ()
    """Hypotheses, the most likely first."""
    chain: Chain = field(default_factory=Chain)
    """Causal chain of the run, from the first cause to the symptoms; empty if no cause was found."""
    unjudged: tuple[Unjudged, ...] = ()
    """Questions that could not be judged, each with the reason."""
    headline: str = ""
    """The summary without the cause, where the cause is shown below it; "" if that is the summary."""
    observations: tuple[Observation, ...] = ()
    """Numbers beyond those of nearly all sound trainings, and no named cause's, the most unusual first; no alarm."""
    ranks: tuple[RankState, ...] = ()
    """Ranks of the job, where several were judged together; else empty."""

    def __str__(self) -> str:
        causes = (f"{h.rank}. {h.label}: {h}\n   {h.remedy.text}" for h in self.hypotheses)
        return "\n".join([f"{self.verdict.upper()}: {self.summary}", *causes])

    @shown
    def _repr_html_(self) -> str:
        return diagnosis_html(self)

    @property
    def untold(self) -> tuple[str, ...]:
        """The symptoms that the summary does not name."""
        told = self.summary.lower()
        return tuple(symptom for symptom in self.symptoms if symptom.lower() not in told)

    @property
    def effects(self) -> tuple[Event, ...]:
        """The sure events that the first cause explains, by first step: those that pictures may lead with. Without any
        cause all sure events of a failing or suspect run.
        """
        if self.verdict not in ("failing", "suspect"):
            return ()
        found = [event for event in self.events if event.sure]
        for first in self.hypotheses[:1]:
            begun = first.step or 0
            found = [event for event in found if event.kind in first.explains and event.last_step >= begun]
        return tuple(sorted(found, key=lambda event: event.first_step))

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as strict JSON values (schema ``neuraldbg.diagnosis/1``).

        >>> run.diagnose().to_dict()["hypotheses"][0]["cause"]
        'missing_zero_grad'
        """
        body = jsonable(self)
        assert isinstance(body, dict)
        return {"schema": SCHEMA, **body}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the diagnosis as strict JSON text; a NaN is the string "NaN". None for ``indent`` gives one line.

        >>> print(run.diagnose().to_json(indent=None)[:36])
        {"schema": "neuraldbg.diagnosis/1",
        """
        return json.JSONEncoder(indent=indent, allow_nan=False).encode(self.to_dict())

    def worse_or_equal(self, verdict: str) -> bool:
        """Return True if the verdict is at least as bad as ``verdict``. Raises ValueError if that is no verdict.

        >>> dbg.diagnose().worse_or_equal("suspect")
        True
        """
        if verdict not in VERDICTS:
            message = f"a verdict is one of {', '.join(VERDICTS)}, not {verdict!r}"
            raise ValueError(message)
        return VERDICTS.index(self.verdict) >= VERDICTS.index(verdict)


# ---------------------------------------------------------------- as HTML, for notebooks

VERDICT_COLOUR = {"failing": "#D55E00", "suspect": "#E69F00", "healthy": "#009E73", "inconclusive": "#56B4E9"}
"""Colour of the edge beside each verdict, Okabe and Ito's: visible on light and dark ground; the word says the same."""
VERDICT_STYLE = "border-left:5px solid;padding-left:.6em;margin:.3em 0"


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """Render a diagnosis as HTML: verdict, headline, symptoms, causes, chain, and all questions not judged."""
    colour = VERDICT_COLOUR.get(diagnosis.verdict, "currentColor")
    head = f"<b>{safe(diagnosis.verdict.upper())}</b>: {safe(diagnosis.headline or diagnosis.summary)}"
    parts = [
        f'<p style="{VERDICT_STYLE};border-color:{colour}">{head}</p>',
        listed(safe(symptom) for symptom in diagnosis.untold),
    ]
    if diagnosis.hypotheses:
        parts.append("<h4>Likely causes</h4>")
    for i, hypothesis in enumerate(diagnosis.hypotheses):
        opened = " open" if i == 0 else ""
        title = f"{_label(hypothesis)} {percent(hypothesis.confidence)}{_place(hypothesis)}"
        parts.append(f"<details{opened}><summary>{title}</summary>{_body(hypothesis)}</details>")
    parts.append(_chain(diagnosis.chain))
    parts += [f"<p>Ranks:</p>{listed(safe(str(one)) for one in diagnosis.ranks)}"] * bool(diagnosis.ranks)
    if diagnosis.observations:
        parts.append(f"<h4>Also unusual</h4>{listed(safe(str(one)) for one in diagnosis.observations[:UNUSUAL])}")
    if diagnosis.unjudged:
        items = listed(f"{safe(one.what)}: {safe(one.reason)}" for one in diagnosis.unjudged)
        parts.append(f"<details><summary>Not judged ({len(diagnosis.unjudged)})</summary>{items}</details>")
    return div("".join(parts))


def _hypothesis_html(hypothesis: Hypothesis) -> str:
    """Render one hypothesis as HTML, with its evidence and its fix."""
    title = f"{_label(hypothesis)} {percent(hypothesis.confidence)}{_place(hypothesis)}"
    return div(f'<p style="margin:.3em 0">{title}</p>{_body(hypothesis)}')


def _label(hypothesis: Hypothesis) -> str:
    behind = f" · <code>{safe(hypothesis.cause)}</code>" if hypothesis.title else ""
    return f"<b>{safe(hypothesis.title or hypothesis.cause)}</b>{behind}"


def _body(hypothesis: Hypothesis) -> str:
    parts = [f"<p>{safe(hypothesis.sentence[:1].upper() + hypothesis.sentence[1:])}</p>"]
    parts += [
        listed(
            f"<code>{safe(f'{p.file}:{p.line}')}</code> <code>{safe(p.code)}</code>"
            + (f" ({safe(p.what)} here)" if p.what else "")
            for p in hypothesis.places
        )
    ]
    parts.append(listed(_statement(one) for one in sorted(hypothesis.evidence, key=lambda one: not one.supports)))
    if hypothesis.equivalent:
        parts.append(f"<p>Cannot be distinguished from {safe(', '.join(hypothesis.equivalent))}.</p>")
    if hypothesis.verification:
        tried = (f"{safe(key)}: {safe(number_text(value))}" for key, value in hypothesis.verification.items())
        parts.append(f"<p>Tried:</p>{listed(tried)}")
    if hypothesis.remedy.text:
        parts.append(f"<p><b>Fix:</b> {safe(hypothesis.remedy.text)}</p>")
    if code := hypothesis.remedy.code:
        parts.append(f"<pre>{'<br>'.join(map(safe, code.strip(chr(10)).expandtabs(4).splitlines()))}</pre>")
    return f'<div style="margin-left:1.2em">{"".join(parts)}</div>'


def _statement(evidence: Evidence) -> str:
    named = (("measured", evidence.value), ("threshold", evidence.threshold))
    known = isinstance(evidence.value, float) or evidence.value is None  # other values count or name the items listed
    numbers = [f"{name} {number_text(value)}" for name, value in named if known and isinstance(value, (int, float))]
    measured = f' <span style="{DIM}">[{safe(", ".join(numbers))}]</span>' if numbers else ""
    return f"<b>{'for' if evidence.supports else 'against'}</b>: {safe(evidence.statement)}{measured}"


def _chain(chain: Chain) -> str:
    if not chain.worth_showing:
        return ""
    items = []
    for node in chain.nodes:
        where = [part for part in (node.layer, None if node.step is None else f"step {node.step:,}") if part]
        reason = next((edge.why for edge in chain.edges if edge.target == node.id and edge.why), "")
        after = f' <span style="{DIM}">{safe(", ".join([*where, *([f"by {reason}"] if reason else [])]))}</span>'
        items.append(f"{safe(node.role)}: {safe(node.label)}{after}")
    return f"<h4>Causal chain</h4>{listed(items, 'ol')}"


def _place(hypothesis: Hypothesis) -> str:
    parts = [safe(hypothesis.layer)] if hypothesis.layer else []
    parts += [f"step {hypothesis.step:,}"] if hypothesis.step is not None else []
    return f' <span style="{DIM}">{", ".join(parts)}</span>' if parts else ""
