"""The terminal face: a diagnosis as text that is read in ten seconds.

The short form says each thing once: verdict, symptom, the first cause with its line of code, its strongest evidence and
the fix, the causal chain if it has more than one link, and one line each for other causes and for what was not judged.
A healthy run has three lines. The long form (``--verbose``) has all causes with all evidence, and all reasons. Works
at any width from 40 columns, without colour, and in ASCII.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neuraldbg.nouns.diagnosis import AS_WRITTEN, UNUSUAL
from neuraldbg.show.format.footnotes import Footnotes, brief_averages
from neuraldbg.show.format.phrases import credible, percent, place, statement, telling
from neuraldbg.show.format.run_line import facts_line, ranks_line
from neuraldbg.show.format.safe_text import listed, number, sentence, shortest
from neuraldbg.show.terminal.chain import chain_lines, chain_sentence
from neuraldbg.show.terminal.marks import UNICODE, VERDICT_STYLE
from neuraldbg.show.terminal.page import Page, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, OverflowMethod, RenderableType

    from neuraldbg.nouns import Diagnosis, Hypothesis
    from neuraldbg.show.terminal.marks import Marks

EVIDENCE = 3
"""Pieces of evidence of a cause in the short form."""
OTHERS = 3
"""Other causes, and questions not judged, that the short form names."""
FULL = 3
"""Number of causes that have a block in the long form."""
BRIEF, FOR, AGAINST, SYMPTOMS, UNJUDGED, EQUIVALENT = 4, 4, 3, 4, 4, 4
"""Largest numbers of items of each kind in the long form."""


def render(diagnosis: Diagnosis, width: int | None = None, *, verbose: bool = False, saved: str = "") -> RenderableType:
    """Return the diagnosis as something that a rich console prints, at most ``width`` columns wide."""
    form = _Long if verbose else _Short

    def parts(marks: Marks, encoding: str, wide: int) -> Iterator[RenderableType]:
        return form(marks, encoding, wide, saved=saved).all(diagnosis)

    return Page(parts, width)


def print_diagnosis(diagnosis: Diagnosis, console: Console, *, verbose: bool = False, saved: str = "") -> None:
    """Print the diagnosis, in the short or in the long form. ``saved`` is said of a healthy run in the short form."""
    # A line of code that is too long is wrapped by the terminal, not cut.
    console.print(render(diagnosis, verbose=verbose, saved=saved), crop=False)


@dataclass(frozen=True)
class _Writer(Writer):
    """The parts of a diagnosis that both forms have."""

    footnotes: Footnotes = field(default_factory=Footnotes)
    saved: str = ""
    """Where ``neuraldbg run`` saved the run, for the last line of a healthy one; "" for a saved run."""

    @property
    def long_form(self) -> str:
        """The way to the long form: a run is not repeated for it."""
        return "neuraldbg explain -v" if self.saved else "-v"

    def all(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Yield every part in reading order; parts without content are left out."""
        raise NotImplementedError

    def headline(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Yield the verdict as a sign, a word and a colour, then the symptom."""
        style = VERDICT_STYLE.get(diagnosis.verdict, "bold")
        word = f"{self.marks.verdict.get(diagnosis.verdict, '?')} {diagnosis.verdict.upper()}"
        rule = self.marks.rule * max(0, self.width - len(word) - 1)
        yield Text.assemble((word, style), " ", (rule, "dim"))
        yield self.text(self.short(sentence(diagnosis.headline or diagnosis.summary)), "bold")

    def name(self, cause: Hypothesis, before: str = "") -> RenderableType:
        """Return the heading of a cause: title, id, probability and place."""
        after = [f"{percent(cause.confidence)} sure", *place(cause)]
        if cause.title:
            after.insert(0, cause.cause)
        dot = f" {self.marks.dot} "
        return Text.assemble(
            (before, "bold"),
            (self.clean(cause.title or cause.cause), "bold"),
            (self.clean(dot + dot.join(after)), "dim"),
        )

    def lines(self, cause: Hypothesis) -> Iterator[RenderableType]:
        """Yield the lines of the user's code, each with what happens there."""
        for spot in cause.places:
            code = f": {spot.code}" if spot.code else ""
            what = f" ({spot.what} here)" if spot.what else ""
            yield self.item(f"{shortest(spot.file)}:{spot.line}{code}{what}", sign=">", sign_style="bold cyan", by=3)

    def evidence(self, words: str, supports: bool) -> RenderableType:
        """Return one piece of evidence behind a sign for or against."""
        sign, style = ("+", "bold green") if supports else ("-", "bold red")
        return self.item(self.short(words), sign=sign, sign_style=style, by=3)

    def equivalent(self, cause: Hypothesis) -> Iterator[RenderableType]:
        """Yield the causes that the evidence cannot distinguish from this one."""
        if cause.equivalent:
            names = listed(list(cause.equivalent), EQUIVALENT)
            yield self.item(f"cannot be distinguished from {names}", sign="=", sign_style="bold cyan", by=3)

    def remedy(self, cause: Hypothesis) -> Iterator[RenderableType]:
        """Yield the remedy in words and as code; code is never wrapped, so that it can be copied."""
        if cause.remedy.text:
            yield self.indented(Text.assemble(("Fix: ", "bold green"), self.clean(sentence(cause.remedy.text))))
        for line in cause.remedy.code.strip("\n").splitlines():
            shown = Text.assemble((f"     {self.marks.code} ", "green"), self.clean(line.expandtabs(4)))
            shown.no_wrap, shown.overflow = True, "ignore"
            yield shown

    def unusual(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Yield what is unusual and no cause's, a line each."""
        for one in diagnosis.observations[:UNUSUAL]:
            yield self.text(f"Also unusual: {self.short(str(one))}.")

    def ranks(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Yield the state of each rank of a job."""
        if diagnosis.ranks:
            told = ranks_line(diagnosis.ranks, f" {self.marks.dot} ")
            yield self.text(told[:1].upper() + told[1:], "dim")

    def notes(self) -> Iterator[RenderableType]:
        """Yield the footnotes."""
        for line in self.footnotes.lines():
            yield self.text(line, "dim")

    def short(self, words: str) -> str:
        """Move the explanations of averages into footnotes."""
        return self.footnotes.without(words)

    def indented(self, what: RenderableType, by: int = 3) -> RenderableType:
        """Move to the right."""
        return Padding(what, (0, 0, 0, by))


class _Short(_Writer):
    """The writer of the form that says each thing once."""

    def all(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Yield verdict, symptom, first cause, causal chain, and one line each for what else there is."""
        if diagnosis.verdict == "healthy":
            said = replace(diagnosis, summary=brief_averages(diagnosis.summary))
            yield from self.headline(said)
            yield from self.unusual(diagnosis)
            last = self.text(self.healthy(diagnosis), "dim")
            if self.saved:  # a path in it is copied, so it is left to the terminal to wrap
                last.no_wrap, last.overflow = True, "ignore"
            yield last
            return
        yield from self.headline(diagnosis)
        if diagnosis.hypotheses:
            yield Text()
            yield from self.cause(diagnosis, diagnosis.hypotheses[0])
        if diagnosis.chain.worth_showing:
            yield self.heading("Causal chain")
            titles = {one.cause: one.title for one in diagnosis.hypotheses}
            yield self.indented(self.text(chain_sentence(diagnosis.chain, self.marks, titles)))
        yield Text()
        yield from self.rest(diagnosis)
        yield from self.notes()

    def cause(self, diagnosis: Diagnosis, cause: Hypothesis) -> Iterator[RenderableType]:
        """Yield the first cause: name, sentence, line of code, strongest evidence that adds something, and remedy."""
        yield self.name(cause)
        said = self.short(sentence(cause.sentence[:1].upper() + cause.sentence[1:]))
        yield self.indented(self.text(said))
        yield from self.lines(cause)
        for one in telling(cause, diagnosis.headline or diagnosis.summary, EVIDENCE):
            yield self.evidence(statement(one), one.supports)
        yield from self.equivalent(cause)
        yield from self.remedy(cause)

    def rest(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Yield other causes, what was not judged, and the run, a line each."""
        others = credible(diagnosis.hypotheses)[1:]
        if others:
            named = "; ".join(f"{one.label} ({percent(one.confidence)})" for one in others[:OTHERS])
            yield self.text(f"Also likely: {named}{_more(len(others) - OTHERS)}.")
        yield from self.unusual(diagnosis)
        for one in diagnosis.unjudged:
            if one.what == AS_WRITTEN:
                yield self.text(f"At a stop, {one.reason}.")
        whats = list(dict.fromkeys(one.what for one in diagnosis.unjudged if one.what != AS_WRITTEN))
        if whats:
            yield self.text(f"Not judged: {', '.join(whats[:OTHERS])}{_more(len(whats) - OTHERS)}.", "dim")
        yield from self.ranks(diagnosis)
        if facts := facts_line(diagnosis.run, f" {self.marks.dot} ", brief=True):
            yield self.text(facts, "dim")
        page = f", or neuraldbg causes {diagnosis.hypotheses[0].cause}" if diagnosis.hypotheses else ""
        yield self.text(f"More: {self.long_form}{page}", "dim")

    def healthy(self, diagnosis: Diagnosis) -> str:
        """Return the last line of a healthy run: where it is, and where there is more to read."""
        known = {key: value for key, value in diagnosis.run.items() if key != "steps"}  # the sentence has the steps
        dot = f" {self.marks.dot} "
        return dot.join(
            filter(None, [self.saved or facts_line(known, dot, brief=True), f"{self.long_form} shows the rest"])
        )


class _Long(_Writer):
    """The writer of the form with all causes, all evidence and all reasons."""

    def all(self, diagnosis: Diagnosis) -> Iterator[RenderableType]:
        """Yield every part in reading order."""
        yield from self.headline(diagnosis)
        for symptom in diagnosis.untold[:SYMPTOMS]:
            yield self.item(symptom)
        yield from self.cut(len(diagnosis.untold) - SYMPTOMS)
        full = credible(diagnosis.hypotheses[:FULL])
        if full:
            yield self.heading("Likely cause" if len(full) == 1 else "Likely causes")
            for i, hypothesis in enumerate(full):
                if i:
                    yield Text()
                yield from self.cause(hypothesis, i + 1)
        yield from self.brief(diagnosis.hypotheses[len(full) :])
        if diagnosis.chain.worth_showing:
            yield self.heading("Causal chain")
            for line, style in chain_lines(diagnosis.chain, self.marks):
                yield Padding(self.text(line, style), (0, 0, 0, 2))
        if diagnosis.observations:
            yield self.heading("Also unusual")
            for unusual in diagnosis.observations:
                yield self.item(self.short(str(unusual)))
        if diagnosis.unjudged:
            yield self.heading("Not judged")
            for one in diagnosis.unjudged[:UNJUDGED]:
                yield self.item(f"{one.what}: {one.reason}", "dim")
            yield from self.cut(len(diagnosis.unjudged) - UNJUDGED)
        yield Text()
        for said in (diagnosis.run.get("schedules") or ())[:BRIEF]:
            yield self.text(self.clean(sentence(said[:1].upper() + said[1:])), "dim")
        yield from self.ranks(diagnosis)
        facts = facts_line(diagnosis.run, f" {self.marks.dot} ")
        if facts:
            yield self.text(facts, "dim")
        if diagnosis.hypotheses:
            yield self.text(f"neuraldbg causes {diagnosis.hypotheses[0].cause} explains the cause.", "dim")
        yield from self.notes()

    def cause(self, cause: Hypothesis, rank: int) -> Iterator[RenderableType]:
        """Yield the block of a cause: name, sentence, lines, evidence for and against, and the remedy."""
        yield self.name(cause, f"{rank}. ")
        failure = cause.failure[:1].upper() + cause.failure[1:]
        yield self.indented(self.text(self.short(sentence(f"{failure}, likely due to {cause.sentence}"))))
        yield from self.lines(cause)
        for supports, most in ((True, FOR), (False, AGAINST)):
            evidence = [e for e in cause.evidence if e.supports is supports]
            for one in evidence[:most]:
                yield self.evidence(statement(one), supports)
            yield from self.cut(len(evidence) - most, by=5)
        yield from self.equivalent(cause)
        if cause.verification:
            told = ", ".join(f"{key} {number(value)}" for key, value in cause.verification.items())
            yield self.item(f"tried: {told}", sign="*", sign_style="bold cyan", by=3)
        yield from self.remedy(cause)

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
            table.add_row(percent(cause.confidence), self.text(cause.label), self.text(where, "dim"))
        yield Padding(table, (0, 0, 0, 1))
        yield from self.cut(len(causes) - BRIEF, by=3)


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
