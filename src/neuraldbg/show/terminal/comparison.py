"""The terminal face of a comparison: the verdict and where the runs part first, then what else is different."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from neuraldbg.show.terminal.marks import ASCII, UNICODE, Marks
from neuraldbg.show.text import number, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from neuraldbg.nouns.comparison import Comparison, Difference, HealthChange, LossPair, Setting

WIDEST = 100
SETTINGS, HEALTH, LAYERS, LISTED = 12, 10, 8, 6
"""How many of each are shown before the list is cut."""
STYLE = {"identical": "bold green", "close": "bold green", "diverged": "bold yellow", "incomparable": "bold cyan"}
SIGN = {"identical": "healthy", "close": "healthy", "diverged": "suspect", "incomparable": "inconclusive"}
WORD = {"close": "SAME WITHIN THE TOLERANCE"}
KINDS = {
    "input": "inputs",
    "param": "weights",
    "activation": "outputs",
    "op": "operands of the loss",
    "output_grad": "gradients at outputs",
    "param_grad": "gradients of weights",
    "update": "updates",
    "loss": "loss",
}


def render(comparison: Comparison, width: int | None = None) -> RenderableType:
    """Return the comparison as something that a rich console prints, at most ``width`` columns wide."""
    return _Face(comparison, width)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the comparison."""
    console.print(render(comparison), crop=False)


@dataclass(frozen=True)
class _Face:
    """Waits for the console, which knows the width and the encoding."""

    comparison: Comparison
    width: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, self.width or WIDEST)
        writer = _Writer(ASCII if options.ascii_only else UNICODE, options.encoding, width)
        segments = console.render(Group(*writer.all(self.comparison)), options.update(width=width, highlight=False))
        for line in Segment.split_lines(segments):
            yield from without_trailing_blanks(line)
            yield Segment.line()


@dataclass(frozen=True)
class _Writer:
    """Turns the parts of a comparison into renderables with one set of signs and one encoding."""

    marks: Marks
    encoding: str
    width: int

    def all(self, c: Comparison) -> Iterator[RenderableType]:
        """Give every part in reading order; parts without content are left out."""
        word = f"{self.marks.verdict[SIGN[c.verdict]]} {WORD.get(c.verdict, c.verdict.upper())}"
        names = f"{c.names[0]} against {c.names[1]}"
        yield Text.assemble((word, STYLE[c.verdict]), f"  {self.clean(names)}")
        yield self.text(c.summary, "bold")
        if c.first is not None:
            yield from self.meaning(c.first, c)
        if c.settings:
            yield self.heading("What was set differently")
            yield from self.settings(c.settings)
        yield from self.models(c)
        if c.first is not None and c.kinds:
            yield self.heading("What differs, and from which step on")
            yield self.kinds(c)
        if c.losses and c.verdict != "identical":
            yield self.heading("Loss")
            for pair in c.losses:
                yield from self.loss(pair, c)
        if c.health:
            yield self.heading("What went wrong in one of them")
            yield from self.health(c.health, c.names)
        yield Text()
        yield self.text(self.footing(c), "dim")
        for note in c.notes:
            yield self.item(note, "dim")

    def meaning(self, first: Difference, c: Comparison) -> Iterator[RenderableType]:
        """What it means that this place is the first."""
        if first.reading:
            yield self.item(f"{first.reading[0].upper()}{first.reading[1:]}.")
        if first.also:
            many = "other sites differ" if first.also > 1 else "other site differs"
            yield self.item(f"{first.also} {many} in the same step.")
        if first.since is not None and first.step - first.since > 1:
            yield self.item(f"It began after step {first.since:,}, the last one before it that was compared.")
        if c.overall is not None and c.overall.course != "unknown":
            o = c.overall
            ends = f"{number(o.begin)} at step {o.first:,}, {number(o.end)} at step {o.last:,}"
            yield self.item(f"All layers: median difference {ends} ({o.course}, x{o.factor:.3g} a step).")

    def settings(self, settings: Sequence[Setting]) -> Iterator[RenderableType]:
        """A line each."""
        grid = self.grid(2)
        for one in settings[:SETTINGS]:
            name = f"{one.name} ({one.layer})" if one.layer else one.name
            change = f"{shown(one.one)} -> {shown(one.other)} (from step {one.step:,})"
            grid.add_row(self.text(name), self.text(change))
        yield Padding(grid, (0, 0, 0, 2))
        yield from self.cut(len(settings) - SETTINGS)

    def models(self, c: Comparison) -> Iterator[RenderableType]:
        """Layers that have another name, or are in one of the runs only."""
        if not (c.paired or any(c.only)):
            return
        yield self.heading("Layers")
        for pair in c.paired[:LAYERS]:
            if pair.how == "structure":
                yield self.item(f"{pair.one} is {pair.other} in {c.names[1]} (the same {pair.types[1]}, by structure)")
            else:
                yield self.item(f"{pair.one or '(model)'}: {pair.types[0]} -> {pair.types[1]}")
        yield from self.cut(len(c.paired) - LAYERS)
        for name, only in zip(c.names, c.only, strict=True):
            if only:
                more = f" (+{len(only) - LISTED} more: --json)" if len(only) > LISTED else ""
                yield self.item(f"only in {name}: {', '.join(only[:LISTED])}{more}")

    def kinds(self, c: Comparison) -> RenderableType:
        """A row for each kind of sites."""
        grid = self.grid(4)
        for kind in c.kinds:
            since = "identical" if kind.largest == 0 and not kind.differing else "within the tolerance"
            if kind.first is not None:
                since = f"step {kind.first:,}"
            grid.add_row(
                self.text(KINDS.get(kind.kind, kind.kind)),
                self.text(since),
                self.text(f"{kind.differing} of {kind.sites}"),
                self.text(f"at most {share(kind.largest)}" if kind.largest else "", "dim"),
            )
        return Padding(grid, (0, 0, 0, 2))

    def loss(self, pair: LossPair, c: Comparison) -> Iterator[RenderableType]:
        """Final, best and mean, and when they part."""
        grid = self.grid(4)
        of = f" of optimizer {pair.stream}" if len(c.losses) > 1 else ""
        grid.add_row(Text(), *(self.text(f"{word}{of}", "dim") for word in ("final", "best", "mean")))
        for k, name in enumerate(c.names):
            grid.add_row(self.text(name), *(self.text(number(v[k])) for v in (pair.final, pair.best, pair.mean)))
        yield Padding(grid, (0, 0, 0, 2))
        if pair.apart is not None:
            yield self.item(f"more than 10% apart from step {pair.apart:,} on")
        elif pair.parts is not None:
            yield self.item(f"beyond the tolerance from step {pair.parts:,} on, but within 10% at the end")

    def health(self, changes: Sequence[HealthChange], names: tuple[str, str]) -> Iterator[RenderableType]:
        """A row each: what, where, how it is in either run."""
        grid = self.grid(4)
        grid.add_row(Text(), Text(), *(self.text(name, "dim") for name in names))
        for one in changes[:HEALTH]:
            place = one.layer or ""
            if one.step is not None:
                place = f"{place} step {one.step:,}".strip()
            grid.add_row(self.text(one.what), self.text(place), self.text(one.one), self.text(one.other))
        yield Padding(grid, (0, 0, 0, 2))
        yield from self.cut(len(changes) - HEALTH)

    def footing(self, c: Comparison) -> str:
        """What the comparison rests on."""
        dot = f" {self.marks.dot} "
        verdicts = " and ".join(verdict for verdict in c.verdicts if verdict)
        parts = [
            f"{c.compared.sites} sites in {c.compared.read:,} steps compared, the loss in {c.compared.scalars:,}",
            f"tolerance {c.tolerance.rtol:g} relative"
            + (f", {c.tolerance.atol:g} absolute" if c.tolerance.atol else "")
            + f" ({c.tolerance.source})",
        ]
        return dot.join([*parts, f"diagnoses: {verdicts}"] if verdicts else parts)

    def grid(self, columns: int) -> Table:
        """A table without lines."""
        grid = Table.grid(padding=(0, 2))
        for _ in range(columns):
            grid.add_column(overflow="fold")
        return grid

    def heading(self, title: str) -> RenderableType:
        """A title with a blank line above it."""
        return Group(Text(), Text(title, style="bold underline" if self.marks is UNICODE else "bold"))

    def item(self, words: str, style: str = "") -> RenderableType:
        """A list item whose further lines hang under its first word."""
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(ratio=1)
        grid.add_row(Text(self.marks.sigil, style="dim"), self.text(words, style))
        return Padding(grid, (0, 0, 0, 2))

    def cut(self, more: int) -> Iterator[RenderableType]:
        """Say how many were left out, if any were."""
        if more > 0:
            yield Padding(Text(f"(+{more} more: --json)", style="dim"), (0, 0, 0, 4))

    def text(self, words: str, style: str = "") -> Text:
        """Words as text: never markup, never a control character."""
        return Text(self.clean(words), style=style)

    def clean(self, words: str) -> str:
        """Make words of the runs safe for this terminal."""
        return plain(words, self.encoding)


def shown(value: Any) -> str:
    """Return a setting's value for people."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(one) for one in value)
    return str(value) or "none"


def share(relative: float) -> str:
    """Return a relative difference: in per cent where that is readable."""
    if relative == float("inf"):
        return "NaN or Inf in one run only"
    return f"{100 * relative:.3g}%" if relative >= 1e-3 else f"{relative:.1e}"


def without_trailing_blanks(line: list[Segment]) -> list[Segment]:
    """Take away what tables pad with: piped text should not end in spaces."""
    while line and not line[-1].text.strip(" "):
        line = line[:-1]
    if line:
        line = [*line[:-1], Segment(line[-1].text.rstrip(" "), line[-1].style)]
    return line
