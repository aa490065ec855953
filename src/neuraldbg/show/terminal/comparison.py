"""The terminal face of a comparison: the verdict and the first difference, then all other differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neuraldbg.show import comparison as say
from neuraldbg.show.format.safe_text import number
from neuraldbg.show.terminal.page import Page, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, RenderableType

    from neuraldbg.nouns.comparison import Comparison, HealthChange, LossPair, Setting

STYLE = {"healthy": "bold green", "suspect": "bold yellow", "inconclusive": "bold cyan"}


def render(comparison: Comparison, width: int | None = None) -> RenderableType:
    """Return the comparison as something that a rich console prints, at most ``width`` columns wide."""
    return Page(lambda *how: _Writer(*how).all(comparison), width)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the comparison."""
    console.print(render(comparison), crop=False)


class _Writer(Writer):
    """The writer that turns the parts of a comparison into renderables."""

    def all(self, c: Comparison) -> Iterator[RenderableType]:
        """Give every part in reading order; parts without content are left out."""
        word = f"{self.marks.verdict[say.sign_of(c)]} {say.word_of(c).upper()}"
        names = f"{c.names[0]} against {c.names[1]}"
        yield Text.assemble((word, STYLE[say.sign_of(c)]), f"  {self.clean(names)}")
        yield self.text(c.summary, "bold")
        if c.first is not None:
            for said in say.meanings(c.first, c):
                yield self.item(said)
        if c.settings:
            yield self.heading(say.SET)
            yield from self.settings(c.settings)
        yield from self.models(c)
        if c.first is not None and c.kinds:
            yield self.heading(say.DIFFERS)
            yield self.kinds(c)
        if c.losses and c.verdict != "identical":
            yield self.heading(say.LOSS)
            for pair in c.losses:
                yield from self.loss(pair, c)
        if c.health:
            yield self.heading(say.WRONG)
            yield from self.health(c.health, c.names)
        yield Text()
        yield self.text(say.footing(c, self.marks.dot), "dim")
        for note in c.notes:
            yield self.item(note, "dim")

    def settings(self, settings: Sequence[Setting]) -> Iterator[RenderableType]:
        """Yield the different settings, a line each."""
        rows = say.settings(settings)
        yield self.rows([(name, f"{values} (from {step})") for name, values, step in rows[: say.SETTINGS]])
        yield from self.cut(len(rows) - say.SETTINGS)

    def models(self, c: Comparison) -> Iterator[RenderableType]:
        """Yield layers that have another name, or are in one of the runs only."""
        if not (c.paired or any(c.only)):
            return
        yield self.heading("Layers")
        for pair in c.paired[: say.LAYERS]:
            yield self.item(say.layer_pair(pair, c.names))
        yield from self.cut(len(c.paired) - say.LAYERS)
        for name, only in zip(c.names, c.only, strict=True):
            if only:
                yield self.item(say.only_in(name, only))

    def kinds(self, c: Comparison) -> RenderableType:
        """Return a table with a row for each kind of sites."""
        return self.rows([say.kind_row(kind, min(c.compared.steps)) for kind in c.kinds])

    def loss(self, pair: LossPair, c: Comparison) -> Iterator[RenderableType]:
        """Yield the last, lowest and mean losses, and the step from which they differ."""
        of = f" of optimizer {pair.stream}" if len(c.losses) > 1 else ""
        values = [[number(v[k]) for v in (pair.final, pair.best, pair.mean)] for k in range(len(c.names))]
        heads = ["", *(f"{word}{of}" for word in say.LOSSES)]
        yield self.rows([[name, *said] for name, said in zip(c.names, values, strict=True)], heads)
        if said := say.apart(pair):
            yield self.item(said)

    def health(self, changes: Sequence[HealthChange], names: tuple[str, str]) -> Iterator[RenderableType]:
        """Yield the changes of health, a row each: name, place, value in each run."""
        rows = [(one.what, say.health_place(one), one.one, one.other) for one in changes[: say.HEALTH]]
        yield self.rows(rows, ["", "", *names])
        yield from self.cut(len(changes) - say.HEALTH)

    def rows(self, rows: Sequence[Sequence[str]], heads: Sequence[str] = ()) -> RenderableType:
        """Return a table without lines; on a terminal too narrow for its words, a list with an item for each row."""
        cells = [[self.clean(cell) for cell in row] for row in (heads, *rows) if row]
        columns = list(zip(*cells, strict=True))
        least = [max(len(word) for cell in column for word in ["", *cell.split()]) for column in columns]
        if sum(least) + 2 * len(least) > self.width:
            named = heads or [""] * len(columns)
            parts = [[f"{head} {cell}".strip() for head, cell in zip(named, row, strict=True) if cell] for row in rows]
            return Group(*(self.item(f" {self.marks.dot} ".join(part)) for part in parts))
        grid = Table.grid(padding=(0, 2))
        for wide in least:
            grid.add_column(overflow="fold", min_width=wide)
        for k, row in enumerate(cells):
            grid.add_row(*(Text(cell, style="dim" if heads and not k else "") for cell in row))
        return Padding(grid, (0, 0, 0, 2))
