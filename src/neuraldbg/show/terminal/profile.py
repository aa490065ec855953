"""The terminal face of a profile: the parts of a step, the layers by time, memory, bottlenecks and their remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neuraldbg.nouns.measures import count, flops, percent, rate, seconds, size
from neuraldbg.show.format.safe_text import counted, sentence
from neuraldbg.show.terminal.frame import cut
from neuraldbg.show.terminal.page import Page, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from neuraldbg.nouns.facts.footprint import FootprintFact
    from neuraldbg.nouns.facts.timing import LayerTiming, TimingFact
    from neuraldbg.nouns.profile import Bottleneck, Profile

TOP = 15
"""Layers that are listed if no other number is asked for."""
_PARTS = {
    "data": "data loader",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "evaluation": "forward passes without gradients",
    "other": "the rest",
}
_BAR = 24
"""Cells of the bar of a whole step."""
_NAME = 14
"""Cells of a layer's name at least."""


def _own(one: LayerTiming) -> float:
    return one.own_forward_s + (one.own_backward_s or 0.0)


SORTED: dict[str, Callable[[LayerTiming], float]] = {
    "time": _own,
    "forward": lambda one: one.own_forward_s,
    "backward": lambda one: one.own_backward_s or 0.0,
    "flops": lambda one: (one.flops or 0.0) + (one.backward_flops or 0.0),
    "calls": lambda one: float(one.calls),
    "order": lambda _: 0.0,
}
"""What layers may be sorted by, the largest first; ``order`` is that of their first call."""


def render(profile: Profile, *, sort: str = "time", top: int = TOP, width: int | None = None) -> RenderableType:
    """Return the profile as something that a rich console prints, at most ``width`` columns wide."""
    return Page(lambda *how: _Writer(*how).all(profile, sort, top), width)


def print_profile(profile: Profile, console: Console, *, sort: str = "time", top: int = TOP) -> None:
    """Print the profile."""
    console.print(render(profile, sort=sort, top=top), crop=False)


class _Writer(Writer):
    """The writer that turns the parts of a profile into renderables."""

    def all(self, profile: Profile, sort: str, top: int) -> Iterator[RenderableType]:
        """Give every part in reading order; parts without content are left out."""
        timing = profile.timing
        if timing is None:
            yield Text("PROFILE  no step was timed", style="bold")
        else:
            yield self.text(f"PROFILE  {_headline(timing)}", "bold")
            caution = timing.caution()
            if caution:
                yield self.item(caution, "yellow")
            if not timing.doubtful:
                yield self.parts(profile)
        if profile.bottlenecks:
            yield self.heading("Bottlenecks")
            for one in profile.bottlenecks:
                yield from self.bottleneck(one)
        if timing is not None and timing.layers:
            yield self.heading("Layers")
            yield self.layers(timing, sort, top)
            yield from self.cut(len(timing.layers) - top, by=2)
        if timing is not None and timing.timers:
            yield self.heading("Timers")
            yield self.timers(timing, top)
            yield from self.cut(len(timing.timers) - top, by=2)
        if profile.footprint is not None:
            yield self.heading("Memory")
            yield self.memory(profile.footprint, profile.outputs)
        told = {timing.caution()} if timing is not None else set()
        notes = [*(note for note in profile.notes if note not in told)]
        notes += [*([_traced(timing)] if timing is not None and timing.trace else [])]
        if notes:
            yield Text()
        for note in notes:
            yield self.item(note, "dim")

    def parts(self, profile: Profile) -> RenderableType:
        """Return the parts of a step with their time and share, a line each."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column()
        for _ in range(2):
            grid.add_column(justify="right")
        grid.add_column()
        for name, took, share in profile.parts():
            bar = "#" * round(_BAR * share) if not self.marks.dots else "█" * round(_BAR * share)
            by_hand = profile.timing is not None and profile.timing.by_hand  # data and evaluation may be anything
            grid.add_row(
                name if by_hand and name != "other" else _PARTS[name],
                seconds(took),
                percent(share),
                Text(bar, style="cyan"),
            )
        return Padding(grid, (0, 0, 0, 2))

    def bottleneck(self, one: Bottleneck) -> Iterator[RenderableType]:
        """Yield what was measured, and below it what to do."""
        yield self.item(sentence(one.text))
        if one.remedy:
            yield self.item(one.remedy, "green", sign=self.marks.arrow, by=4)

    def layers(self, timing: TimingFact, sort: str, top: int) -> RenderableType:
        """Return the table of the layers: times of their own, without those of the layers inside."""
        order = sorted(timing.layers, key=lambda one: -SORTED[sort](one))
        names, rows, work = [], [], timing.own_flops()
        for one in order[:top]:
            calls = f" x{one.calls:,}" if one.calls > 1 else ""
            kind = f" ({one.type})" if one.type else ""
            names.append(f"{one.layer or '(the model)'}{kind}{calls}")
            rows.append(_row(one, timing, work.get(one.layer, 0.0)))
        heads = ["time", "forward", "backward", "FLOP", "FLOP/s", "output"]
        columns = [[head, *(row[at] for row in rows)] for at, head in enumerate(heads)]
        kept = [at for at, column in enumerate(columns) if any(column[1:])]
        wide = {at: max(map(len, columns[at])) for at in kept}
        room = self.width - 2 - sum(wide[at] + 2 for at in kept)
        last = len(heads) - 1
        if room < _NAME and last in kept:  # shapes are cut before names are
            wide[last] = max(wide[last] - (_NAME - room), len(heads[last]))
            room = self.width - 2 - sum(wide[at] + 2 for at in kept)
        room = min(max(room, _NAME), max(map(len, names)))
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        for at in kept:
            grid.add_column(justify="left" if at == last else "right", no_wrap=True)
        grid.add_row("", *(Text(heads[at], style="dim") for at in kept))
        for name, row in zip(names, rows, strict=True):
            cells = [Text(cut(self.clean(row[at]), wide[at], self.marks)) for at in kept]
            grid.add_row(Text(cut(self.clean(name), room, self.marks)), *cells)
        return Padding(grid, (0, 0, 0, 2))

    def timers(self, timing: TimingFact, top: int) -> RenderableType:
        """Return the table of the timers that the program set, over the whole run."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for _ in range(5):
            grid.add_column(justify="right", no_wrap=True)
        heads = ("own time", "total", "calls", "median", "95%")
        grid.add_row("", *(Text(head, style="dim") for head in heads))
        for one in timing.timers[:top]:
            cells = (seconds(one.own_s), seconds(one.total_s), f"{one.calls:,}", seconds(one.median_s))
            grid.add_row(self.text(one.name), *cells, seconds(one.p95_s))
        return Padding(grid, (0, 0, 0, 2))

    def memory(self, found: FootprintFact, outputs: int | None) -> RenderableType:
        """Return the memory of a step by what it holds, a line each."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column()
        grid.add_column(justify="right")
        grid.add_column()
        if found.peak is not None:
            at = f"at {found.peak_at}" if found.peak_at else ""
            grid.add_row("most so far" if found.whole_run else "peak", size(found.peak), self.text(at, "dim"))
        if found.by_hand:  # of nothing else the bytes are known
            return Padding(grid, (0, 0, 0, 2))
        for name in ("parameters", "gradients", "optimizer", "activations"):
            held = getattr(found, name)
            if held is not None:
                grid.add_row(name, size(held), "")
            elif outputs is None:
                grid.add_row(name, "not measured", "")
            else:  # outputs of layers are a part of them, and not all are kept
                grid.add_row(name, "not measured", self.text(f"outputs of layers: {size(outputs)}", "dim"))
        if found.beside:
            grid.add_row("beside the model", size(found.beside), self.text("on the device all the time", "dim"))
        return Padding(grid, (0, 0, 0, 2))


def _headline(timing: TimingFact) -> str:
    """Say how long a step takes, and how much is computed in it."""
    told = [f"{seconds(timing.ordinary_s)} a step"]
    if timing.flops:
        reached = timing.reached_flops
        told.append(f"{flops(timing.flops)}{f' at {rate(reached)}' if reached else ''}")
        if timing.machine_flops and reached and not timing.doubtful:
            told.append(f"{percent(reached / timing.machine_flops)} of a large matrix product here")
    which = f": {timing.first:,}" if timing.steps == 1 else f", {timing.first:,} to {timing.last:,}"
    took = f" of {seconds(timing.step_s)}" if timing.usual_s else ""
    kind = "timed step" if timing.by_hand else "sampled step"
    told.append(f"{counted(timing.steps, kind)}{took}{which}")
    return "; ".join(told)


def _row(one: LayerTiming, timing: TimingFact, work: float) -> list[str]:
    own, share = _own(one), _own(one) / timing.step_s if timing.step_s else 0.0
    return [
        percent(share) if own and not timing.doubtful else "",
        seconds(one.own_forward_s),
        seconds(one.own_backward_s) if one.own_backward_s is not None else "",
        count(work) if work else "",
        count(work / own) if work and own else "",
        _shape(one.outputs),
    ]


def _shape(outputs: tuple[str, ...]) -> str:
    """Write the shape of the first output: 32x10, and the number of others."""
    if not outputs:
        return ""
    dtype, _, shape = outputs[0].partition("[")
    sizes = shape.rstrip("]").replace(", ", "x")
    kind = "" if dtype == "float32" else f" {dtype}"
    return f"{sizes or 'scalar'}{kind}" + (f" +{len(outputs) - 1}" if len(outputs) > 1 else "")


def _traced(timing: TimingFact) -> str:
    return f"{timing.trace}, beside the run file, opens in https://ui.perfetto.dev"
