"""Time and memory of a run for a report: a Profile enters; sentences, tables and suggestions leave.

Nothing was measured in most runs: then there is no such part, and the pictures without data say how to record them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.nouns.step_spans import parts_of
from neuraldbg.show.format.leaks import kind_of, none_found, place_of, rate_of, remedy_of, risen_notes, span_of
from neuraldbg.show.format.safe_text import number
from neuraldbg.show.format.unit_amounts import amount, per_cent
from neuraldbg.show.views.memory import peak_note, whole_note
from neuraldbg.show.views.timed import sampled_note, share, step_note, work_note

if TYPE_CHECKING:
    from neuraldbg.nouns.facts.footprint import FootprintFact
    from neuraldbg.nouns.facts.growth import Survivors
    from neuraldbg.nouns.facts.kinds import SourceLine
    from neuraldbg.nouns.facts.timing import TimingFact
    from neuraldbg.nouns.profile import Profile

LAYERS = 12
"""Layers in the table at most: the costliest."""
LEAKS = 12
"""Kinds of growing tensors at most."""
Cells = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table: heads, rows, and the columns of numbers."""

    title: str
    heads: Cells
    rows: tuple[Cells, ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """A part of a report that its caller brings along: sentences, tables and notes under a title."""

    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leak:
    """Tensors that live on from step to step, in words."""

    what: str
    rate: str
    lines: tuple[tuple[str, str, str], ...]
    """Lines of the user's code: file and number, what happens there, and the line itself."""
    remedy: str


@dataclass(frozen=True)
class Costs:
    """The part of a report on time and memory."""

    sentences: tuple[str, ...]
    """What a step takes, what its peak is, what grows."""
    bottlenecks: tuple[tuple[str, str], ...]
    """What costs most, and what to change; "" if nothing is known."""
    tables: tuple[Table, ...]
    leaks: tuple[Leak, ...]
    notes: tuple[str, ...]
    """How it was measured, and what was not."""


def costs_of(profile: Profile | None) -> Costs | None:
    """Return time and memory in words; None if nothing of them was measured."""
    if profile is None or (profile.timing is None and profile.footprint is None and profile.growth is None):
        return None
    timing, footprint, growth = profile.timing, profile.footprint, profile.growth
    said: list[str] = []
    notes: list[str] = []
    tables: list[Table] = []
    if timing is not None:
        said += [step_note(timing), work_note(timing)]
        notes.append(sampled_note(timing))
        tables += [] if timing.doubtful else [_phases(timing)]
        tables.append(_timers(timing))
    if footprint is not None:
        said += [peak_note(footprint), whole_note(footprint)]
    if timing is not None or footprint is not None:
        tables.append(_layers(timing, footprint))
    leaks: tuple[Leak, ...] = ()
    if growth is not None:
        said += risen_notes(growth, span=False)
        (said if growth.counts else notes).append(none_found(growth))
        leaks = tuple(_leak(one) for one in growth.survivors[:LEAKS])
        more = len(growth.survivors) - LEAKS
        notes += [f"Tensors that live on are {span_of(growth)}"] * bool(leaks)
        notes += [f"{more:,} smaller kinds of growing tensors are left out"] * (more > 0)
    # A leak has a part of its own, with its lines.
    found = tuple((one.text, one.remedy) for one in profile.bottlenecks if one.kind != "leak" or not leaks)
    return Costs(
        tuple(filter(None, said)),
        found,
        tuple(table for table in tables if table.rows),
        leaks,
        (*filter(None, notes), *profile.notes),
    )


def _phases(timing: TimingFact) -> Table:
    rows = tuple((name, amount(took, "s"), per_cent(took, timing.step_s)) for name, took in parts_of(timing))
    return Table("The parts of a step", ("part", "time", "share"), rows, (1, 2))


def _timers(timing: TimingFact) -> Table:
    rows = tuple(
        (
            one.name,
            number(one.calls),
            *(amount(took, "s") for took in (one.total_s, one.own_s, one.median_s, one.p95_s)),
        )
        for one in timing.timers[:LAYERS]
    )
    few = f"The {LAYERS:,} costliest of {len(timing.timers):,} timers" if len(timing.timers) > LAYERS else "Timers"
    heads = ("timer", "calls", "total", "without timers inside", "median", "95th percentile")
    return Table(few, heads, rows, (1, 2, 3, 4, 5))


def _layers(timing: TimingFact | None, footprint: FootprintFact | None) -> Table:
    """Return the costliest layers: by time if it was measured, else by memory; in the order of their calls."""
    timed = {one.layer: one for one in timing.layers} if timing is not None else {}
    held = {one.layer: one for one in footprint.layers} if footprint is not None else {}
    spent = {path: one.own_forward_s + (one.own_backward_s or 0.0) for path, one in timed.items()}
    sizes = {
        path: one.parameters + one.gradients + one.optimizer + (one.activations or 0) for path, one in held.items()
    }
    given = footprint is not None and footprint.by_hand
    if given:
        sizes = {path: one.peak or 0 for path, one in held.items()}
    cost = spent if timed else sizes
    order = list(timed or held)
    kept = set(sorted(order, key=lambda path: -cost[path])[:LAYERS])
    rows = []
    for path in order:
        if path not in kept:
            continue
        cells = [path or "(model)"]
        if timed:
            one = timed[path]
            times = (amount(one.own_forward_s, "s"), amount(one.own_backward_s, "s"), share(timing, spent[path]))
            cells += [", ".join(one.outputs), *times, amount(one.flops, "FLOP")]
        if held:
            cells.append(amount(sizes[path], "B") if path in sizes else "")
        rows.append(tuple(cells))
    heads = ["layer"]
    heads += ["output", "forward", "backward", "share of the step", "operations"] if timed else []
    heads += ["most memory" if given else "memory"] if held else []
    few = f"The {len(kept):,} costliest of {len(order):,} layers" if len(kept) < len(order) else "The layers"
    return Table(few, tuple(heads), tuple(rows), tuple(range(2 if timed else 1, len(heads))))


def _leak(one: Survivors) -> Leak:
    made, kept = _line(one.made, "made"), _line(one.kept, "kept")
    alive = "" if one.grows else f", {number(one.alive)} alive at the last count"
    return Leak(kind_of(one), f"{rate_of(one)}{alive}", (*made, *kept), remedy_of(one))


def _line(line: SourceLine | None, what: str) -> tuple[tuple[str, str, str], ...]:
    return () if line is None else ((place_of(line), what, line.text.strip().expandtabs(4)),)
