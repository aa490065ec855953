"""Content -> Markdown that any renderer reads alike: pictures are drawn as text in code fences.

Words of the run stand behind backslashes wherever they could be taken for Markdown or HTML, and in fences that are
longer than any that they hold.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.show.format.run_line import facts_line
from neuraldbg.show.format.safe_text import plain, sentence
from neuraldbg.show.report.describe import described, reading
from neuraldbg.show.terminal.draw import columns, drawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from neuraldbg.show.forms import View
    from neuraldbg.show.report.content import Cause, Content, Row
    from neuraldbg.show.report.costs import Chapter, Costs, Table

WIDTH = 80
"""Columns of a drawing."""
ACTIVE = re.compile(r"([\\`*_\[\]<>|&~$#])")
"""What Markdown, its tables, its usual additions or HTML may take for a sign of theirs, anywhere in a line."""
AT_START = re.compile(r"^(\d*)([-+=.)])")
"""What may begin a list, a heading or a rule at the start of a line."""
LINK = re.compile(r"\b(https?|ftp)(:)|\b(www)(\.)", re.IGNORECASE)
"""What some renderers turn into links by themselves."""


def markdown(content: Content) -> str:
    """Return the report."""
    return "\n".join(_lines(content)).rstrip("\n") + "\n"


def room(view: View) -> int | None:
    """Return the number of columns over time in the drawing of a view; None if it is no map of columns."""
    return columns(view, WIDTH)


def text(words: str) -> str:
    """Return words of the run as Markdown that shows them as they are, on one line."""
    shown = ACTIVE.sub(r"\\\1", plain(words).strip())
    shown = LINK.sub(lambda found: found.group()[:-1] + "\\" + found.group()[-1], shown)
    return AT_START.sub(r"\1\\\2", shown)


def fenced(code: str, language: str = "") -> Iterator[str]:
    """Give code in a fence that nothing in it can close."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield from (plain(line) for line in code.splitlines())
    yield fence


def _lines(content: Content) -> Iterator[str]:
    diagnosis = content.diagnosis
    yield f"# {diagnosis.verdict.upper()}: {text(sentence(content.headline))}"
    yield ""
    if content.meaning:
        yield content.meaning
        yield ""
    yield from _list(text(sentence(symptom)) for symptom in content.symptoms)
    yield text(facts_line(diagnosis.run, " · "))
    yield ""
    if content.causes:
        yield from _heading(2, "Likely cause" if len(content.causes) == 1 else "Likely causes")
        for i, cause in enumerate(content.causes):
            yield from _heading(3, f"{i + 1}. {text(cause.title)} · {text(cause.id)}")
            yield from _cause(cause)
        if content.lesser:
            yield from _heading(3, "Less likely")
            named = ((f"{text(one.title)} · {text(one.id)}", one.confidence, text(one.place)) for one in content.lesser)
            yield from _list(" · ".join(filter(None, parts)) for parts in named)
    for note in content.averages:
        yield text(note)
        yield ""
    if content.chain:
        yield from _heading(2, "Causal chain")
        for i, point in enumerate(content.chain):
            where = f" · {text(point.where)}" if point.where else ""
            how = f" ({text(point.how)})" if point.how else ""
            yield f"{i + 1}. **{point.role}:** {text(point.label)}{where}{how}"
        yield ""
    yield from _pictures(content)
    yield from _rest(content)


def _cause(cause: Cause) -> Iterator[str]:
    yield " · ".join(filter(None, (f"**{cause.confidence} sure**", text(cause.place))))
    yield ""
    yield text(cause.sentence)
    yield ""
    for said, word in ((cause.supports, "Evidence for it"), (cause.against, "Evidence against it")):
        if said:
            yield f"**{word}**"
            yield ""
            yield from _list(map(text, said))
    if cause.equivalent:
        yield f"**Cannot be distinguished from:** {'; '.join(map(text, cause.equivalent))}"
        yield ""
    if cause.tried:
        yield f"**Tried:** {text(cause.tried)}"
        yield ""
    for file, what, code in cause.lines:
        yield f"**Line of code:** {text(file + f' ({what} here)' * bool(what))}"
        yield ""
        if code:
            yield from fenced(code, "python")
            yield ""
    if cause.remedy or cause.code:
        yield f"**Fix:** {text(cause.remedy)}"
        yield ""
        if cause.code:
            yield from fenced(cause.code, "python")
            yield ""


def _pictures(content: Content) -> Iterator[str]:
    shown = [*content.leading, *(one for one in content.further if not one.view.empty)]
    if shown:
        yield from _heading(2, "Pictures")
    for one in shown:
        yield from _heading(3, text(one.title))
        if one.why:
            yield text(sentence(one.why))
            yield ""
        yield from fenced(_drawing(one.view))
        yield ""
        yield " ".join(text(sentence(said)) for said in (described(one.view), reading(one.view), *one.view.notes))
        yield ""
    missing = [(one.title, sentence(one.view.empty)) for one in content.further if one.view.empty]
    if missing:
        yield from _heading(3, "Without data")
        yield from _rows(missing)


def _drawing(view: View) -> str:
    """Return the view as text without its title and its notes, which the report has beside it."""
    lines = drawn(replace(view, title="", notes=()), WIDTH).plain.splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _costs(costs: Costs) -> Iterator[str]:
    yield from _heading(2, "Time and memory")
    yield from _list(text(sentence(said)) for said in costs.sentences)
    if costs.bottlenecks:
        yield from _heading(3, "What costs most")
        yield from _list(
            text(sentence(said)) + (f" **To change it:** {text(sentence(remedy))}" if remedy else "")
            for said, remedy in costs.bottlenecks
        )
    if costs.leaks:
        yield from _heading(3, "Tensors that live on from step to step")
        for leak in costs.leaks:
            lines = "; ".join(text(f"{what} at {file}" + f": {code}" * bool(code)) for file, what, code in leak.lines)
            where = f" {lines}." if lines else ""
            yield f"- **{text(leak.what)}:** {text(sentence(leak.rate))}{where} **To change it:** {text(leak.remedy)}"
        yield ""
    yield from _tables(costs.tables, costs.notes)


def _chapter(chapter: Chapter) -> Iterator[str]:
    yield from _heading(2, text(chapter.title))
    for said in chapter.sentences:
        yield text(sentence(said))
        yield ""
    yield from _tables(chapter.tables, chapter.notes)


def _tables(tables: Iterable[Table], notes: Iterable[str]) -> Iterator[str]:
    for table in tables:
        yield from _heading(3, text(table.title))
        yield f"| {' | '.join(map(text, table.heads))} |"
        yield f"|{'|'.join(' ---: ' if i in table.numbers else ' --- ' for i in range(len(table.heads)))}|"
        for row in table.rows:
            yield f"| {' | '.join(map(text, row))} |"
        yield ""
    for note in notes:
        yield text(sentence(note))
        yield ""


def _rest(content: Content) -> Iterator[str]:
    for chapter in content.chapters:
        yield from _chapter(chapter)
    if content.costs is not None:
        yield from _costs(content.costs)
    yield from _heading(2, "The run")
    yield from _rows(content.about)
    if content.program:
        yield from _heading(3, "The program")
        yield from _rows(content.program)
    yield from _heading(2, "Limits of this diagnosis")
    if content.diagnosis.observations:
        yield from _heading(3, "Also unusual")
        yield from _list(text(sentence(str(one))) for one in content.diagnosis.observations)
    unjudged = [(one.what, sentence(one.reason)) for one in content.diagnosis.unjudged]
    yield from _heading(3, "Not judged")
    yield from _rows(unjudged or (("nothing", "every known cause was judged"),))
    if content.watching:
        yield from _heading(3, "What was recorded")
        yield from _rows(content.watching)
    yield from _heading(2, "Glossary")
    yield from _rows(content.glossary)


def _heading(level: int, words: str) -> Iterator[str]:
    yield f"{'#' * level} {words}"
    yield ""


def _rows(rows: Iterable[Row]) -> Iterator[str]:
    yield from _list(f"**{text(name)}:** {text(value)}" for name, value in rows)


def _list(items: Iterable[str]) -> Iterator[str]:
    listed = [f"- {item}" for item in items]
    yield from (*listed, "") if listed else ()
