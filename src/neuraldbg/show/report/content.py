"""The content of a report in any format: a RunRecord and a Diagnosis enter, Content in reading order leaves.

Pictures are computed here and drawn by the writer of each format. Words of the run are passed on unchanged: each format
makes them safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from neuraldbg.show.format.footnotes import Footnotes
from neuraldbg.show.format.phrases import credible, percent, place, statement
from neuraldbg.show.format.safe_text import number, sentence
from neuraldbg.show.report.costs import costs_of
from neuraldbg.show.report.pictures import Picture, chain_picture, pictures
from neuraldbg.show.report.program import program
from neuraldbg.show.report.watching import about, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neuraldbg.nouns import Chain, Diagnosis, Hypothesis, RunRecord
    from neuraldbg.nouns.profile import Profile
    from neuraldbg.show.forms import View
    from neuraldbg.show.report.costs import Chapter, Costs

Row = tuple[str, str]
"""A name and its value, as a row of a table."""


MEANING = {
    "failing": "The training failed, or the model does not learn.",
    "suspect": "The model trains, but a fault is likely to hurt the result.",
    "healthy": "No fault was found.",
    "inconclusive": "Too little was recorded to judge.",
}


@dataclass(frozen=True)
class Background:
    """The title and help page of a cause, from the taxonomy."""

    title: str
    """Name of the fault in a few words."""
    page: str = ""
    """Help page with its headings: What it is, Symptoms, Evidence, What to do."""


@dataclass(frozen=True)
class Cause:
    """One hypothesis of the diagnosis, in words for the report."""

    id: str
    title: str
    confidence: str
    """Confidence in per cent."""
    share: float
    """Confidence from 0 to 1."""
    place: str
    """Layer and step; "" if it has none."""
    sentence: str
    supports: tuple[str, ...]
    against: tuple[str, ...]
    equivalent: tuple[str, ...]
    tried: str
    remedy: str
    code: str
    lines: tuple[tuple[str, str, str], ...]
    """Source lines of the user's code: file and number, a description, and the line itself."""
    background: tuple[tuple[str, str], ...]
    """Headings and paragraphs of the cause's page."""


@dataclass(frozen=True)
class Point:
    """One point of the causal chain, in words for the report."""

    role: str
    label: str
    where: str
    """Layer and step, if the label does not have them."""
    how: str
    """Description of the point that it follows from; "" for the first."""


@dataclass(frozen=True)
class Content:
    """Everything that a report contains, in reading order."""

    diagnosis: Diagnosis
    name: str
    """Name of the script, for the title."""
    meaning: str
    """Meaning of the verdict; "" if the headline says it."""
    headline: str
    """The symptom, or the whole summary where no cause is named."""
    symptoms: tuple[str, ...]
    causes: tuple[Cause, ...]
    lesser: tuple[Cause, ...]
    averages: tuple[str, ...]
    """Footnotes that explain the averages in the texts above."""
    chain: tuple[Point, ...]
    drawn_chain: Picture | None
    leading: tuple[Picture, ...]
    further: tuple[Picture, ...]
    costs: Costs | None
    """Time and memory. None if nothing of them was measured."""
    about: tuple[Row, ...]
    program: tuple[Row, ...]
    watching: tuple[Row, ...]
    glossary: tuple[Row, ...]
    chapters: tuple[Chapter, ...] = ()
    """Parts that the caller brought along."""


GLOSSARY: tuple[Row, ...] = (
    ("optimizer step", "one update of the weights; steps are counted from 0"),
    ("layer", "a part of the model, named by its path in the program, such as encoder.0.linear"),
    ("activation", "the output of a layer for a batch"),
    ("gradient", "the change of the loss with each weight; the optimizer moves the weights against it"),
    ("norm", "the length of a tensor taken as one vector: the root of the sum of its squares"),
    ("rms", "root mean square: the typical size of a tensor's values, whatever its number of values"),
    ("update ratio", "the size of an update relative to the weights (a layer's, in pictures); about 0.001 is usual"),
    (
        "median over weight matrices",
        "an update ratio in a diagnosis is one number for each step; some layers move further",
    ),
    (
        "dead unit",
        "a channel or feature that was zero in every row read over many steps, so that no gradient passes it",
    ),
    ("saturated", "at the bound of a bounded activation, where almost no gradient passes"),
    ("vanishing, exploding gradients", "gradients that shrink or grow by orders of magnitude from layer to layer"),
    ("NaN, infinite", "the result of an undefined or too large computation; it spreads to every number made from it"),
    ("confidence", "the probability that this is a true cause of the failure, fitted on runs with known faults"),
)


def content(
    run: RunRecord,
    diagnosis: Diagnosis,
    backgrounds: Mapping[str, Background],
    room: Callable[[View], int | None] = lambda _: None,
    profile: Profile | None = None,
    chapters: tuple[Chapter, ...] = (),
) -> Content:
    """Put together what a report says. ``backgrounds`` has titles and pages of causes, by id; ``room`` says how many
    columns over time of a view are drawn, None where as many as it has; ``profile`` is where time and memory went;
    ``chapters`` come before it.
    """
    likely = credible(diagnosis.hypotheses)
    footnotes = Footnotes()
    headline = footnotes.without(diagnosis.headline or diagnosis.summary)
    meaning = MEANING.get(diagnosis.verdict, "")
    causes = tuple(_cause(h, backgrounds, footnotes) for h in likely)
    lesser = tuple(_cause(h, backgrounds, footnotes) for h in diagnosis.hypotheses if h not in likely)
    leading, further = pictures(run, diagnosis, room)
    return Content(
        diagnosis=diagnosis,
        name=PurePath(run.info.script).name or "a training run",
        meaning="" if meaning.rstrip(".") in headline else meaning,
        headline=headline,
        symptoms=diagnosis.untold,
        causes=causes,
        lesser=lesser,
        averages=tuple(footnotes.lines()),
        chain=points(diagnosis.chain, backgrounds) if diagnosis.chain.worth_showing else (),
        drawn_chain=chain_picture(run, diagnosis) if diagnosis.chain.worth_showing else None,
        leading=leading,
        further=further,
        costs=costs_of(profile),
        about=about(run, diagnosis),
        program=program(run),
        watching=watching(run, diagnosis),
        glossary=GLOSSARY,
        chapters=chapters,
    )


def _cause(hypothesis: Hypothesis, backgrounds: Mapping[str, Background], footnotes: Footnotes) -> Cause:
    known = backgrounds.get(hypothesis.cause, Background(hypothesis.cause))
    tried = ", ".join(f"{key} {number(value)}" for key, value in (hypothesis.verification or {}).items())
    return Cause(
        id=hypothesis.cause,
        title=hypothesis.title or known.title,
        confidence=percent(hypothesis.confidence),
        share=hypothesis.confidence,
        place=", ".join(place(hypothesis)),
        sentence=footnotes.without(sentence(hypothesis.sentence[:1].upper() + hypothesis.sentence[1:])),
        supports=tuple(footnotes.without(statement(e)) for e in hypothesis.evidence if e.supports),
        against=tuple(footnotes.without(statement(e)) for e in hypothesis.evidence if not e.supports),
        equivalent=tuple(
            f"{backgrounds[name].title} · {name}" if name in backgrounds else name for name in hypothesis.equivalent
        ),
        tried=tried,
        remedy=sentence(hypothesis.remedy.text),
        code=hypothesis.remedy.code.strip("\n").expandtabs(4),
        lines=tuple((f"{at.file}:{at.line}", at.what, at.code.expandtabs(4)) for at in hypothesis.places),
        background=_sections(known.page),
    )


def _sections(page: str) -> tuple[tuple[str, str], ...]:
    """Split a cause's page: a line that is not indented begins a part, what is indented is its text."""
    parts: list[tuple[str, list[str]]] = []
    for line in page.strip().replace("``", "").splitlines():
        if line.strip() and not line.startswith(" "):
            parts.append((line.strip(), []))
        elif parts:
            parts[-1][1].append(line.strip())
    return tuple((heading, " ".join(filter(None, words))) for heading, words in parts if any(words))


def points(chain: Chain, backgrounds: Mapping[str, Background]) -> tuple[Point, ...]:
    """Return the chain as a list, each point with what it follows from."""
    labels = {n.id: backgrounds[n.label].title if n.label in backgrounds else n.label for n in chain.nodes}
    found = []
    for before, node in zip((None, *chain.nodes), chain.nodes, strict=False):
        edge = next((edge for edge in chain.edges if edge.target == node.id and edge.source in labels), None)
        how = ""
        if edge is not None:
            direct = before is not None and edge.source == before.id
            source = "the point before" if direct else labels[edge.source]
            how = f"follows from {source}" + (f", by {edge.why}" if edge.why in {"time", "data flow"} else "")
        where = [node.layer] if node.layer and node.layer not in node.label else []
        if node.step is not None and f"step {node.step}" not in node.label:
            where.append(f"step {node.step:,}")
        found.append(Point(node.role, labels[node.id], ", ".join(where), how))
    return tuple(found)
