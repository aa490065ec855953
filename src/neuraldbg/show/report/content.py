"""The content of a report in any format: a RunRecord and a Diagnosis enter, Content in reading order leaves.

Pictures are computed here and drawn by the writer of each format. Words of the run are passed on unchanged: each format
makes them safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from neuraldbg.show.format.phrases import credible, percent, place, statement
from neuraldbg.show.format.safe_text import number, sentence
from neuraldbg.show.report.pictures import Picture, chain_picture, pictures
from neuraldbg.show.report.program import program
from neuraldbg.show.report.watching import about, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neuraldbg.nouns import Chain, Diagnosis, Hypothesis, RunRecord
    from neuraldbg.show.forms import View

Row = tuple[str, str]
"""A name and its value, as a row of a table."""


MEANING = {
    "failing": "The training broke, or is not learning and will not.",
    "suspect": "The model trains, but something is broken or likely to hurt the result.",
    "healthy": "Nothing was found that would hurt the result.",
    "inconclusive": "There was too little to judge by.",
}


@dataclass(frozen=True)
class Background:
    """The title and help page of a cause, from the taxonomy."""

    title: str
    """Name of the fault in a few words."""
    page: str = ""
    """Help page with its headings: What it is, How it shows, How it is told apart, What to do."""


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
    """Meaning of the verdict."""
    symptoms: tuple[str, ...]
    causes: tuple[Cause, ...]
    lesser: tuple[Cause, ...]
    chain: tuple[Point, ...]
    drawn_chain: Picture | None
    leading: tuple[Picture, ...]
    further: tuple[Picture, ...]
    about: tuple[Row, ...]
    program: tuple[Row, ...]
    watching: tuple[Row, ...]
    glossary: tuple[Row, ...]


GLOSSARY: tuple[Row, ...] = (
    ("optimizer step", "one update of the weights; steps are counted from 0"),
    ("layer", "a part of the model, named by its path in the program, such as encoder.0.linear"),
    ("activation", "what a layer puts out for a batch"),
    ("gradient", "how the loss changes with each weight; the optimizer moves the weights by it"),
    ("norm", "the length of a tensor taken as one vector: the root of the sum of its squares"),
    ("rms", "root mean square: the typical size of a tensor's values, whatever its number of values"),
    ("update ratio", "the size of an update relative to the weights (a layer's, in pictures); about 0.001 is usual"),
    ("median over weight matrices", "what a diagnosis tells of an update ratio: one number a step; some move further"),
    ("dead unit", "a channel or feature that was positive for no sample of late, and so passes nothing on"),
    ("saturated", "at the bound of a bounded activation, where next to no gradient passes"),
    ("vanishing, exploding gradients", "gradients that shrink or grow by orders of magnitude from layer to layer"),
    ("NaN, infinite", "what is left of a number that was no longer computable or too large; it spreads to all others"),
    ("confidence", "how likely the cause is one of what went wrong, fitted on runs with known faults"),
)


def content(
    run: RunRecord,
    diagnosis: Diagnosis,
    backgrounds: Mapping[str, Background],
    room: Callable[[View], int | None] = lambda _: None,
) -> Content:
    """Put together what a report says. ``backgrounds`` has titles and pages of causes, by id; ``room`` says how many
    columns over time of a view are drawn, None where as many as it has.
    """
    likely = credible(diagnosis.hypotheses)
    leading, further = pictures(run, diagnosis, room)
    told = diagnosis.summary.lower()
    return Content(
        diagnosis=diagnosis,
        name=PurePath(run.info.script).name or "a training run",
        meaning=MEANING.get(diagnosis.verdict, ""),
        symptoms=tuple(s for s in diagnosis.symptoms if s.lower() not in told),
        causes=tuple(_cause(h, backgrounds) for h in likely),
        lesser=tuple(_cause(h, backgrounds) for h in diagnosis.hypotheses if h not in likely),
        chain=points(diagnosis.chain, backgrounds),
        drawn_chain=chain_picture(run, diagnosis),
        leading=leading,
        further=further,
        about=about(run, diagnosis),
        program=program(run),
        watching=watching(run, diagnosis),
        glossary=GLOSSARY,
    )


def _cause(hypothesis: Hypothesis, backgrounds: Mapping[str, Background]) -> Cause:
    known = backgrounds.get(hypothesis.cause, Background(hypothesis.cause.replace("_", " ")))
    failure = hypothesis.failure[:1].upper() + hypothesis.failure[1:]
    tried = ", ".join(f"{key} {number(value)}" for key, value in (hypothesis.verification or {}).items())
    return Cause(
        id=hypothesis.cause,
        title=known.title[:1].upper() + known.title[1:],
        confidence=percent(hypothesis.confidence),
        share=hypothesis.confidence,
        place=", ".join(place(hypothesis)),
        sentence=sentence(f"{failure}, likely due to {hypothesis.sentence}"),
        supports=tuple(statement(e) for e in hypothesis.evidence if e.supports),
        against=tuple(statement(e) for e in hypothesis.evidence if not e.supports),
        equivalent=tuple(
            f"{backgrounds[name].title} ({name})" if name in backgrounds else name for name in hypothesis.equivalent
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
