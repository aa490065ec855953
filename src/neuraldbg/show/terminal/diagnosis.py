"""The terminal face: a diagnosis as text that is read in ten seconds.

The verdict and the summary come first, then the likely causes with evidence for and against each and the remedy, then
the causal chain. Works at any width from 40 columns, without colour, and in ASCII.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neuraldbg.show.format.phrases import credible, percent, place, statement
from neuraldbg.show.format.run_line import facts_line
from neuraldbg.show.format.safe_text import listed, number, sentence, shortest
from neuraldbg.show.terminal.chain import chain_lines
from neuraldbg.show.terminal.marks import UNICODE, VERDICT_STYLE
from neuraldbg.show.terminal.page import Page, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, OverflowMethod, RenderableType

    from neuraldbg.nouns import Diagnosis, Hypothesis

FULL = 3
"""Number of causes that have a block."""
BRIEF, FOR, AGAINST, SYMPTOMS, UNJUDGED, EQUIVALENT = 4, 4, 3, 4, 4, 4
"""Largest numbers of items of each kind that are shown."""


def render(diagnosis: Diagnosis, width: int | None = None) -> RenderableType:
    """Return the diagnosis as something that a rich console prints, at most ``width`` columns wide."""
    return Page(lambda *how: _Writer(*how).all(diagnosis), width)


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print the diagnosis."""
    console.print(render(diagnosis), crop=False)  # a line of code that is too long is wrapped by the terminal, not cut


class _Writer(Writer):
    """The writer that turns the parts of a diagnosis into renderables."""

    def all(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Give every part in reading order; parts without content are left out."""
        yield from self.headline(diagnosis)
        full = credible(diagnosis.hypotheses[:FULL])
        if full:
            yield self.heading("Likely cause" if len(full) == 1 else "Likely causes")
            for i, hypothesis in enumerate(full):
                if i:
                    yield Text()
                yield from self.cause(hypothesis, i + 1)
        yield from self.brief(diagnosis.hypotheses[len(full) :])
        if diagnosis.chain:
            yield self.heading("How it came about")
            for line, style in chain_lines(diagnosis.chain, self.marks):
                yield Padding(self.text(line, style), (0, 0, 0, 2))
        if diagnosis.unjudged:
            yield self.heading("Not judged")
            for one in diagnosis.unjudged[:UNJUDGED]:
                yield self.item(f"{one.what}: {one.reason}", "dim")
            yield from self.cut(len(diagnosis.unjudged) - UNJUDGED)
        facts = facts_line(diagnosis.run, f" {self.marks.dot} ")
        if facts:
            yield Text()
            yield self.text(facts, "dim")
        if diagnosis.hypotheses:
            yield self.text(f"neuraldbg causes {diagnosis.hypotheses[0].cause} explains the cause.", "dim")

    def headline(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Yield the verdict as a sign, a word and a colour, then the summary and the symptoms."""
        style = VERDICT_STYLE.get(diagnosis.verdict, "bold")
        word = f"{self.marks.verdict.get(diagnosis.verdict, '?')} {diagnosis.verdict.upper()}"
        rule = self.marks.rule * max(0, self.width - len(word) - 1)
        yield Text.assemble((word, style), " ", (rule, "dim"))
        yield self.text(sentence(diagnosis.summary), "bold")
        told = diagnosis.summary.lower()
        symptoms = [s for s in diagnosis.symptoms if s.lower() not in told]
        for symptom in symptoms[:SYMPTOMS]:
            yield self.item(symptom)
        yield from self.cut(len(symptoms) - SYMPTOMS)

    def cause(self, cause: Hypothesis, rank: int) -> Iterator[RenderableType]:
        """Yield the block of a cause: name, probability, place, sentence, evidence for and against, and the remedy."""
        where = "".join(f" {self.marks.dot} {part}" for part in place(cause))
        yield Text.assemble(
            (f"{rank}. ", "bold"),
            (self.clean(cause.cause), "bold"),
            f"  {percent(cause.confidence)} sure",
            (self.clean(where), "dim"),
        )
        failure = cause.failure[:1].upper() + cause.failure[1:]
        yield self.indented(self.text(sentence(f"{failure}, likely due to {cause.sentence}")))
        for spot in cause.places:
            code = f": {spot.code}" if spot.code else ""
            what = f" ({spot.what} here)" if spot.what else ""
            yield self.item(f"{shortest(spot.file)}:{spot.line}{code}{what}", sign=">", sign_style="bold cyan", by=3)
        for supports, sign, style, most in ((True, "+", "green", FOR), (False, "-", "red", AGAINST)):
            evidence = [e for e in cause.evidence if e.supports is supports]
            for one in evidence[:most]:
                yield self.item(statement(one), sign=sign, sign_style=f"bold {style}", by=3)
            yield from self.cut(len(evidence) - most, by=5)
        if cause.equivalent:
            names = listed(list(cause.equivalent), EQUIVALENT)
            yield self.item(f"cannot be told apart from {names}", sign="=", sign_style="bold cyan", by=3)
        if cause.verification:
            told = ", ".join(f"{key} {number(value)}" for key, value in cause.verification.items())
            yield self.item(f"tried: {told}", sign="*", sign_style="bold cyan", by=3)
        yield from self.remedy(cause)

    def remedy(self, cause: Hypothesis) -> Iterator[RenderableType]:
        """Yield the remedy in words and as code; code is never wrapped, so that it can be copied."""
        if cause.remedy.text:
            yield self.indented(Text.assemble(("Fix: ", "bold green"), self.clean(sentence(cause.remedy.text))))
        for line in cause.remedy.code.strip("\n").splitlines():
            shown = Text.assemble((f"     {self.marks.code} ", "green"), self.clean(line.expandtabs(4)))
            shown.no_wrap, shown.overflow = True, "ignore"
            yield shown

    def brief(self, causes: tuple[Hypothesis, ...]) -> Iterator[RenderableType]:
        """Yield the unlikely causes, a line each."""
        if not causes:
            return
        yield self.heading("Less likely")
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", min_width=5)
        cut: OverflowMethod = "ellipsis" if self.marks is UNICODE else "crop"
        table.add_column(no_wrap=True, overflow=cut)
        table.add_column(ratio=1, no_wrap=True, overflow=cut)
        for cause in causes[:BRIEF]:
            where = ", ".join(place(cause))
            table.add_row(percent(cause.confidence), self.text(cause.cause), self.text(where, "dim"))
        yield Padding(table, (0, 0, 0, 1))
        yield from self.cut(len(causes) - BRIEF, by=3)

    def indented(self, what: RenderableType, by: int = 3) -> RenderableType:
        """Move to the right."""
        return Padding(what, (0, 0, 0, by))
