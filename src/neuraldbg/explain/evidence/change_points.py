"""The change points of a program: what it set, gave or did differently from a step on. Facts, and no judgement.

A change is named by its step where that is known: the learning rate is read at every step. Other settings are read
every few steps, and batches and losses in full steps alone; such a change lies between two readings.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.loss_form import loss_form
from neuraldbg.explain.evidence.wording import listing, number, setting_value
from neuraldbg.nouns import Series
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.loss import LossFact, LossTerm, TensorStatistics
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.explain.evidence.record_readings import RecordReadings

SETTLED = 10
"""First steps, in which a rise of the learning rate is a warm-up and a change of anything a beginning."""
FACTOR = 1.5
"""Least factor of one step by which a learning rate changed: a restart multiplies it, a schedule bends it."""
CREPT = 3.0
"""Factor by which a learning rate has come to differ, in small steps, since the loss was lowest."""
REACH, REACH_SHARE = 100, 8
"""Steps before an onset, and part of the steps up to it, within which a change may have brought it about."""
SLACK = 50
"""Steps before the lowest level of a loss from which a change may have ended its fall."""
READINGS = 5
"""Readings of batches before an onset, and from it on, that are compared."""
TURNS = 4
"""Changes of what gets a gradient up to which they are changes of the program."""
UNITS, OFF = 3.0, 3.0
"""Factor of the standard deviation, and standard deviations of the mean, by which inputs or targets come in other
units; batches of one data set differ by far less."""
SHIFT = 10.0
"""Factor of the standard deviation by which inputs come in other units whatever the loss did."""
OUTSIDE = 0.3
"""Change of a weight between two steps, relative to its size, that no usual treatment of weights makes."""
NAMES = {
    "momentum": "the momentum",
    "weight_decay": "the weight decay",
    "dampening": "the dampening",
    "beta1": "the first beta",
    "beta2": "the second beta",
    "eps": "epsilon",
    "clip": "the clipping limit",
}


@dataclass(frozen=True)
class ChangePoint:
    """One change of the program, between two steps."""

    what: str
    """``lr``, a setting of the CHANGE fact, ``inputs``, ``targets``, ``loss``, ``sign``, ``batch_size`` or
    ``weights``."""
    since: int
    """Last step before the change."""
    until: int
    """First step that is known to be after it."""
    words: str
    """The change as a clause: ``the momentum rose from 0.9 to 0.999``."""
    before: float = math.nan
    """Value before, NaN if it is no number."""
    after: float = math.nan
    """Value after, NaN if it is no number."""
    name: str = ""
    """Layer or model, empty if it is of none."""
    names: tuple[str, ...] = ()
    """Names of parameters that it is about."""
    scaled: bool = False
    """True of inputs or targets whose standard deviation changed: ``before`` and ``after`` are that."""

    @property
    def when(self) -> str:
        """The step of the change, or the steps between which it lies: ``at step 1700``, ``between steps 1187 and
        1259``.
        """
        if self.until <= self.since + 1:
            return f"at step {self.until}"
        return f"between steps {self.since} and {self.until}"

    @property
    def said(self) -> str:
        """The change with its date."""
        return f"{self.words} {self.when}"


def change_points(run: RecordReadings, onset: int, best: int) -> tuple[ChangePoint, ...]:
    """Return the changes that came shortly before an onset, the latest first. ``best`` is the step at which the loss
    was lowest before it.
    """
    # A loss that left its lowest level slowly did so for what happened there.
    reach = max(REACH, onset // REACH_SHARE, onset - best + SLACK if onset - best < onset // 3 else 0)
    found = [*_rates(run, onset, best), *_settings(run), *_batches(run, onset), *_losses(run, onset), *_weights(run)]
    near = [one for one in found if one.until > SETTLED and onset - reach <= one.until and one.since < onset]
    return tuple(sorted(near, key=lambda one: (-min(one.until, onset), one.since)))


def _rates(run: RecordReadings, onset: int, best: int) -> Iterator[ChangePoint]:
    rates = run.scalar("lr").finite()
    before, after = rates.values[:-1], rates.values[1:]
    single = (rates.width[:-1] == 1) & (rates.width[1:] == 1) & (before > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = single & (np.abs(np.log(after / before)) > math.log(FACTOR))
    for k in np.flatnonzero(steep & (rates.steps[1:] <= onset)).tolist():
        words = f"the learning rate {_went(before[k], after[k])}"
        at = int(rates.steps[k + 1])
        yield ChangePoint("lr", at - 1, at, words, float(before[k]), float(after[k]))
    then, now = rates.at(best), rates.at(onset)
    jumped = bool((steep & (rates.steps[1:] > best) & (rates.steps[1:] <= onset)).any())
    if not jumped and then > 0 and now > CREPT * then and best > SETTLED:
        words = f"the learning rate {_went(then, now)} in small steps"
        yield ChangePoint("lr", best, onset, words, then, now)


def _settings(run: RecordReadings) -> Iterator[ChangePoint]:
    turns = {what: len(run.run.versions(ChangeFact, what=what)) for what in ("gradients", "clip")}
    for _, fact in run.run.versions(ChangeFact):
        if fact.stream not in (None, run.stream) or not (words := _words(run, fact)):
            continue
        if turns.get(fact.what, 0) > TURNS:  # layers that are left out by turns, as at random; limits that adapt
            continue
        before, after = (math.nan if value is None else value for value in (fact.before, fact.after))
        yield ChangePoint(fact.what, fact.since, fact.until, words, before, after, fact.name, fact.names)


def _words(run: RecordReadings, fact: ChangeFact) -> str:
    """Write a change of a setting; empty for the mode of a layer beside that of its model."""
    before, after = fact.before or 0.0, fact.after or 0.0
    layer = run.layout.by_path.get(fact.name)
    if fact.what == "training":
        of = "the model" if layer is None else called(fact.name)
        return f"{of} was put in {'training' if after else 'evaluation'} mode"
    if fact.what == "dropout":
        return f"the dropout of {called(fact.name)} {_went(before, after)}"
    if fact.what == "trainable":
        return f"{listing(fact.names)} {'were' if len(fact.names) > 1 else 'was'} {'un' * (after > before)}frozen"
    if fact.what == "weights":
        much = f", by {number(after)} times their size" if fact.after is not None else ""
        return f"something that is no optimizer changed {listing(fact.names) or 'weights'}{much}"
    if fact.what == "gradients":
        does = "gets" if len(fact.names) == 1 else "get"
        return f"{listing(fact.names)} {does} {'no gradient any more' if after < before else 'a gradient again'}"
    if fact.what == "optimizer":
        return "another optimizer object took over"
    if fact.what == "clip" and None in (fact.before, fact.after):
        return f"gradients were clipped at {setting_value(after)} from then on" if after else ""
    if fact.what == "maximize":
        return f"the optimizer was set to {'maximise' if after else 'minimise'} the loss"
    return f"{NAMES[fact.what]} {_went(before, after)}" if fact.what in NAMES else ""


def _went(before: float, after: float) -> str:
    return f"{'rose' if after > before else 'fell'} from {setting_value(before)} to {setting_value(after)}"


def _batches(run: RecordReadings, onset: int) -> Iterator[ChangePoint]:
    """Yield inputs whose mean or spread is another from the onset on, and another size of the batches."""
    for row in run.layout.rows("input"):
        site = run.layout.sites[row]
        mean, std = (run.run.series(row, name).finite() for name in ("mean", "std"))
        of = f"input {site.name!r}" if site.name not in ("", "0", "x", "input") else "inputs"
        yield from _shift("inputs", f"the {of}", mean, std, onset)
    size = run.scalar("batch_size").finite()
    at = _around(size, onset)
    if at is not None:
        before, after = size.values[at - 1], size.values[at]
        if before > 0 and max(before / after, after / before) > FACTOR:
            words = f"the size of the batches {_went(before, after)}"
            yield ChangePoint("batch_size", int(size.steps[at - 1]), int(size.steps[at]), words, before, after)


def input_shift(run: RecordReadings) -> ChangePoint | None:
    """Return the largest change of scale of an input, by ``SHIFT`` at least, wherever it lies in the run; None if there
    is none.
    """
    found = [one for row in run.layout.rows("input") if (one := scale_shift(run, row)) is not None]
    return max(found, key=lambda one: abs(math.log(max(one.after, 1e-300) / one.before)), default=None)


def scale_shift(run: RecordReadings, row: int) -> ChangePoint | None:
    """Return the change of scale of one input, ``row`` of the table, by ``SHIFT`` at least; None if there is none."""
    site = run.layout.sites[row]
    if site.dtype.removeprefix("torch.").startswith(("int", "uint", "bool")):
        return None
    mean, std = (run.run.series(row, name).finite() for name in ("mean", "std"))
    if len(mean) != len(std) or len(std) < 2 * READINGS or not (std.values > 0).all():
        return None
    size = np.log(std.values)
    levels = np.median(np.lib.stride_tricks.sliding_window_view(size, READINGS), axis=1)
    turns = np.abs(levels[READINGS:] - levels[:-READINGS])
    at = READINGS + int(turns.argmax())
    if not turns.max() > math.log(SHIFT):
        return None
    # Of windows that overlap the change, the change is where neighbours differ most.
    near = np.abs(np.diff(size[at - READINGS : at + READINGS]))
    at += int(near.argmax()) + 1 - READINGS
    found = _shifted("inputs", input_words(site.name), mean, std, at)
    return found if found is not None and found.scaled else None


def input_words(name: str) -> str:
    """Name an input of the model in a sentence: the only one has no name."""
    return "the inputs" if name in ("", "0", "x", "input") else f"the input {name!r}"


def _shift(what: str, words: str, mean: Series, std: Series, onset: int) -> Iterator[ChangePoint]:
    """Yield a shift between the readings around an onset, or around the first reading shortly before it."""
    if len(mean) != len(std):
        return
    for step in (onset, onset - REACH):
        at = _around(mean, step)
        found = _shifted(what, words, mean, std, at) if at is not None else None
        if found is not None:
            yield found
            return


def _shifted(what: str, words: str, mean: Series, std: Series, at: int) -> ChangePoint | None:
    """Return the shift between the readings before an index and from it on; None if there is none."""
    begin, end = slice(max(0, at - READINGS), at), slice(at, at + READINGS)
    m0, m1 = float(np.median(mean.values[begin])), float(np.median(mean.values[end]))
    s0, s1 = float(np.median(std.values[begin])), float(np.median(std.values[end]))
    if not s0 > 0:
        return None
    since, until = int(mean.steps[at - 1]), int(mean.steps[at])
    if s1 > UNITS * s0 or s1 < s0 / UNITS:
        spread = f"{words} come in other units: their standard deviation {_went(s0, s1)}"
        spread = f"all values of {words} became {number(m1)}" if s1 == 0 else spread
        return ChangePoint(what, since, until, spread, s0, s1, scaled=True)
    if abs(m1 - m0) > OFF * s0:
        return ChangePoint(what, since, until, f"{words} are shifted: their mean {_went(m0, m1)}", m0, m1)
    return None


def _around(series: Series, onset: int) -> int | None:
    """Return the index of the first reading from an onset on; None if there is none before or after it."""
    at = int(np.searchsorted(series.steps, onset))
    return at if 0 < at < len(series) else None


def _losses(run: RecordReadings, onset: int) -> Iterator[ChangePoint]:
    """Yield losses that are computed in another way than before, and targets in other units."""
    facts = run.run.versions(LossFact, stream=run.stream)
    for (since, old), (until, new) in itertools.pairwise(facts):
        if _opposite(old, new):
            yield _sign(run, since, until)
        elif loss_form(old) != loss_form(new):
            yield ChangePoint("loss", since, until, "the loss is computed in another way")
    read = [(step, fact.terms[0].target) for step, fact in facts if len(fact.terms) == 1 and _numbers(fact.terms[0])]
    yield from _targets(read, onset)


def sign_turn(run: RecordReadings) -> ChangePoint | None:
    """Return the last change of the loss's sign to the opposite, wherever it lies in the run; None if there is none."""
    facts = run.run.versions(LossFact, stream=run.stream)
    turns = [(since, until) for (since, old), (until, new) in itertools.pairwise(facts) if _opposite(old, new)]
    return _sign(run, *turns[-1]) if turns else None


def _opposite(old: LossFact, new: LossFact) -> bool:
    """Return True if all terms of a loss have the other sign in another reading."""
    if [term.kind for term in old.terms] != [term.kind for term in new.terms]:
        return False
    before, after = (tuple(term.sign for term in fact.terms) for fact in (old, new))
    return any(before) and before == tuple(-sign if sign else sign for sign in after)


def _sign(run: RecordReadings, since: int, until: int) -> ChangePoint:
    """Return the change of a loss's sign between two readings, dated by the loss where that changed its sign once."""
    losses = run.scalar("loss").finite().between(since, until)
    negative = losses.values < 0
    turns = np.flatnonzero(negative[1:] != negative[:-1])
    if len(turns) == 1:
        since, until = int(losses.steps[turns[0]]), int(losses.steps[turns[0] + 1])
    return ChangePoint("sign", since, until, "the sign of the loss was turned round")


def _targets(series: list[tuple[int, TensorStatistics | None]], onset: int) -> Iterator[ChangePoint]:
    if not series:
        return
    steps = np.array([step for step, _ in series])
    mean, std = (
        Series(steps, np.array([getattr(target, name) for _, target in series], np.float64), np.ones(len(steps), int))
        for name in ("mean", "std")
    )
    yield from _shift("targets", "the targets", mean, std, onset)


def _numbers(term: LossTerm) -> bool:
    """Return True if the targets of a term are measurements, of which mean and spread were read."""
    target = term.target
    return (
        term.target_dtype.startswith(("float", "bfloat"))
        and target is not None
        and None not in (target.mean, target.std)
    )


def _weights(run: RecordReadings) -> Iterator[ChangePoint]:
    """Yield weights that were changed by something that is no optimizer."""
    found = run.scalar("outside").finite()
    every = run.scalar("backwards").steps
    named = {fact.until for _, fact in run.run.versions(ChangeFact, what="weights")}
    for step, value in zip(found.steps.tolist(), found.values.tolist(), strict=True):
        if value > OUTSIDE and step not in named:
            before = every[every < step]
            words = f"something that is no optimizer changed weights by {number(value)} times their size"
            yield ChangePoint("weights", int(before[-1]) if len(before) else step - 1, step, words, 0.0, value)
