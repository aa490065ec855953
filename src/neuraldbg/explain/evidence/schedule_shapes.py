"""The course of a setting over the run in words: constant, by steps, a warm-up, a line, a cosine, restarts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.wording import number, plural, setting_value
from neuraldbg.nouns import Series
from neuraldbg.nouns.facts.optimizer import OptimizerFact

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from neuraldbg.explain.evidence.record_readings import RecordReadings

    Floats = npt.NDArray[np.float64]
    Steps = npt.NDArray[np.int64]

SAME = 1e-9
"""Relative difference up to which two values are one: schedulers compute a value anew at each step."""
FIT = 0.02
"""Largest distance from a line, an exponential or a half cosine, as a share of the way that is gone, of a piece that is
called one."""
LISTED = 3
"""Levels of a piece that are told one by one."""
FEW = 4
"""Values of a piece from which its form can be told."""
CYCLES = 3
"""Pieces of one direction that begin at one level, from which they are cycles."""
AGAIN = 0.05
"""Relative difference of two such levels."""
SETTINGS = {"lr": "learning rate", "weight_decay": "weight decay", "momentum": "momentum", "eps": "epsilon"}
"""Settings of a parameter group whose course is told, with their names."""
MOST = 6
"""Sentences about one optimizer at most."""
PLATEAU = 0.1
"""Share of the run from which on a level that is kept is a piece of its own."""


@dataclass(frozen=True)
class _Piece:
    """A part of the course in one direction; a level that is kept for long is one, too."""

    steps: Steps
    values: Floats
    """Levels, and the steps at which each begins."""
    end: int
    """Last step."""

    @property
    def direction(self) -> int:
        return int(np.sign(self.values[-1] - self.values[0]))

    @property
    def form(self) -> str:
        """The form with a space before it: `` linearly``; "" if it is none that has a name."""
        if len(self.values) < FEW:
            return ""
        first, last = float(self.values[0]), float(self.values[-1])
        along = (self.steps - self.steps[0]) / float(self.steps[-1] - self.steps[0])
        # A cosine that is stepped once an epoch ends an epoch before its end.
        short = along * (len(along) - 1) / len(along)
        cut = (1 - np.cos(np.pi * short)) / (1 - np.cos(np.pi * short[-1]))
        forms = {" linearly": along, " along a half cosine": (1 - np.cos(np.pi * along)) / 2, " along a cosine": cut}
        if min(first, last) > 0:
            forms[" exponentially"] = ((last / first) ** along - 1) * first / (last - first)
        part = (self.values - first) / (last - first)
        return next((name for name, form in forms.items() if np.abs(part - form).max() <= FIT), "")

    def words(self) -> str:
        """Return the piece as the rest of a sentence: ``falls linearly to 0.001 by step 900``."""
        if len(self.values) == 1:
            return f"stays at {setting_value(float(self.values[0]))} up to step {self.end}"
        verb = "rises" if self.direction > 0 else "falls"
        if len(self.values) - 1 <= LISTED:
            later = zip(self.values[1:], self.steps[1:], strict=True)
            return f"{verb} to " + ", to ".join(
                f"{setting_value(float(value))} at step {step}" for value, step in later
            )
        by = f"by step {self.steps[-1]}"
        return f"{verb}{self.form} to {setting_value(float(self.values[-1]))} {by}"


def shape(series: Series) -> str:
    """Return the course of a setting in words, as the rest of a sentence: ``begins at 1e-05, rises linearly to 0.001 by
    step 100, then falls along a half cosine to 0 by step 1000``; "" if it has no finite value.
    """
    known = series.finite()
    if not len(known):
        return ""
    known = _without_steps_in_bins(known)
    pieces = _pieces(known.steps, known.values)
    first = setting_value(float(known.values[0]))
    if len(pieces) == 1 and len(pieces[0].values) == 1:
        return f"is {first} throughout"
    if cycle := _cycles(pieces):
        return cycle
    said = [piece.words() for piece in pieces[: LISTED + 1]]
    more = len(pieces) - LISTED - 1
    end = f", and changes direction {plural(more, 'more time')}" if more > 0 else ""
    return f"begins at {first}, " + ", then ".join(said) + end


def _without_steps_in_bins(series: Series) -> Series:
    """Leave out means of several steps that lie between two levels: the value was none of the run."""
    values, kept = series.values, np.ones(len(series), np.bool_)
    for at in np.flatnonzero(series.width[1:-1] > 1) + 1 if len(series) > 4 else ():
        before, now, after = values[at - 1], values[at], values[at + 1]
        level = at > 1 and values[at - 2] == before and at + 2 < len(values) and values[at + 2] == after
        kept[at] = not (level and min(before, after) < now < max(before, after))
    return Series(series.steps[kept], values[kept], series.width[kept])


def courses(case: RecordReadings) -> list[str]:
    """Return the courses of all learning rates in words, one sentence each, and those of other settings that changed:
    ``the learning rate of Adam is 0.001 throughout``.
    """
    return [said for stream in case.run.streams for said in itertools.islice(_of_optimizer(case, stream), MOST)]


def _of_optimizer(case: RecordReadings, stream: int) -> Iterator[str]:
    """Yield the courses of the settings of one optimizer: of its first group, and of those that differ from it."""
    versions = case.run.versions(OptimizerFact, stream=stream)
    named = case.run.info.optimizers
    name = named[stream] if stream < len(named) else f"optimizer {stream}"
    if named.count(name) > 1:
        name = f"{name} (optimizer {stream + 1})"
    if rate := shape(case.scalar("lr", stream)):
        yield f"the learning rate of {name} {rate}"
    for group in range(min((len(fact.groups) for _, fact in versions), default=0)):
        of = f"of {name}" + (f" in group {group}" if len(versions[-1][1].groups) > 1 else "")
        for setting, words in SETTINGS.items():
            here = _read(versions, group, setting)
            beside = _read(versions, 0, setting) if group else None
            if len(here) < 2 or (setting == "lr" and group == 0):
                continue  # the learning rate of the first group is known at every step
            if setting == "lr" and beside is not None and len(beside) == len(here) and (beside.values > 0).all():
                ratio = here.values / beside.values
                if np.ptp(ratio) <= FIT * np.abs(ratio).max():
                    if abs(ratio[0] - 1) > FIT:
                        yield f"the {words} {of} is {number(float(ratio[0]))} times that of group 0"
                    continue
            if not (said := shape(here)).endswith("throughout") and (beside is None or said != shape(beside)):
                yield f"the {words} {of} {said}, in the steps whose facts were read"


def _read(versions: tuple[tuple[int, OptimizerFact], ...], group: int, setting: str) -> Series:
    """Return one setting of a group over the steps whose facts were read."""
    read = [(step, getattr(fact.groups[group], setting)) for step, fact in versions]
    known = [(step, float(value)) for step, value in read if isinstance(value, (int, float))]
    steps = np.asarray([step for step, _ in known], np.int64)
    return Series(steps, np.asarray([value for _, value in known], np.float64), np.ones(len(known), np.int64))


def _pieces(steps: Steps, values: Floats) -> list[_Piece]:
    """Cut a course where its direction changes, and at levels that are kept for a large part of it."""
    near = np.abs(np.diff(values)) <= SAME * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    begins = np.concatenate(([0], np.flatnonzero(~near) + 1))
    at, levels = steps[begins], values[begins]
    ends = np.append(at[1:] - 1, steps[-1])
    if len(levels) == 1:
        return [_Piece(at, levels, int(ends[-1]))]
    signs = np.sign(np.diff(levels))
    kept = ends - at + 1
    long = kept >= max(2 * float(np.median(kept)) + 1, PLATEAU * (steps[-1] - steps[0] + 1))
    if len(levels) <= LISTED + 1:
        long[:] = False  # a few levels are told one by one
    pieces, begun = [_Piece(at[:1], levels[:1], int(ends[0]))] if long[0] else [], 0
    for i in range(1, len(levels)):
        turns = i < len(signs) and signs[i] != signs[i - 1]
        if i + 1 == len(levels) or turns or long[i]:
            left = ends[begun] if long[begun] else at[begun]  # a level that is kept is left at its end
            mine = np.concatenate(([left], at[begun + 1 : i + 1]))
            pieces.append(_Piece(mine, levels[begun : i + 1], int(ends[i])))
            if long[i] and i + 1 < len(levels):
                pieces.append(_Piece(at[i : i + 1], levels[i : i + 1], int(ends[i])))
            begun = i
    return pieces


def _cycles(pieces: list[_Piece]) -> str:
    """Return the words for pieces that come again and again; "" if they do not."""
    return _waves(pieces) or _restarts(pieces)


def _waves(pieces: list[_Piece]) -> str:
    """Return the words for a course that goes up and down between two levels; "" if it does not."""
    turns = [piece for piece in pieces[:-1] if len(piece.values) > 1]
    if len(turns) < 2 * CYCLES or any(a.direction == b.direction for a, b in itertools.pairwise(turns)):
        return ""
    sides = [np.asarray([float(piece.values[-1]) for piece in turns[side::2]]) for side in (0, 1)]
    lengths = [int(piece.steps[-1] - piece.steps[0]) for piece in turns]
    if any(np.ptp(side) > AGAIN * max(map(np.abs, np.concatenate(sides))) for side in sides):
        return ""
    if np.ptp(lengths) > 1:
        return ""
    low, high = sorted(float(side[0]) for side in sides)
    return (
        f"goes up and down{turns[0].form} between {number(low)} and {setting_value(high)}, and turns "
        f"{plural(len(pieces) - 1, 'time')}, every {plural(lengths[0], 'step')}"
    )


def _restarts(pieces: list[_Piece]) -> str:
    """Return the words for a course that jumps back to where it began; "" if it does not."""
    for way, verb in ((-1, "falls"), (1, "rises")):
        mine = [piece for piece in pieces if piece.direction == way and len(piece.values) > 1]
        if len(mine) < CYCLES:
            continue
        begins = np.asarray([float(piece.values[0]) for piece in mine])
        lengths = np.diff([int(piece.steps[0]) for piece in mine])
        back = [piece for piece in pieces if piece.direction == -way]
        if np.ptp(begins) > AGAIN * np.abs(begins).max() or any(len(piece.values) > 2 for piece in back):
            continue
        one = mine[0]
        every = f"every {plural(int(lengths[0]), 'step')}" if np.ptp(lengths) <= 1 else "at growing distances"
        every = every if np.ptp(lengths) <= 1 or (np.diff(lengths) >= 0).all() else "at uneven distances"
        return (
            f"{verb}{one.form} from {setting_value(float(begins[0]))} to {number(float(one.values[-1]))}, and starts "
            f"again {plural(len(mine) - 1, 'time')}, {every}"
        )
    return ""
