"""The worst symptom of a run as a person would see it, before any cause is weighed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neuraldbg.explain.evidence.change_points import SETTLED, ChangePoint, change_points
from neuraldbg.explain.evidence.constant_guess import LEARNT, NEAR_GUESS, at_guess, guessing_loss, label_entropy
from neuraldbg.explain.evidence.loss_curve import ENOUGH, FEW
from neuraldbg.explain.evidence.record_readings import RecordReadings
from neuraldbg.explain.evidence.second_signs import second_sign
from neuraldbg.explain.evidence.setbacks import first_setback
from neuraldbg.explain.evidence.wording import number, plural

KINDS = {
    "nonfinite": "nonfinite_loss",
    "diverged": "loss_divergence",
    "relapsed": "loss_divergence",
    "still": "unchanged_parameters",
    "stuck": "loss_plateau",
    "slow": "loss_plateau",
}
"""Kind of event that each symptom corresponds to."""
NAMES = {
    "nonfinite": "NaN or infinite loss",
    "diverged": "loss divergence",
    "relapsed": "lost progress",
    "still": "training without effect",
    "stuck": "stalled learning",
    "slow": "slow learning",
}
"""Name of each symptom in a sentence."""
CLASSES = ("cross_entropy", "nll", "bce", "bce_with_logits", "kl_div", "soft_margin", "multi_margin")
"""Kinds of loss terms that compare classes, whose level near 0 says little."""
LOST = 30
"""Steps near the loss of a constant guess after which a model counts as having lost what it learnt."""
WINDOW = 5
"""Steps over which the level of the loss is taken."""
LEARNT_ALREADY = 0.5
"""Share of the loss of a constant guess; a loss below it at the end that did not fall is that of a pretrained model."""

GOOD, BAD = 2, 3
"""Evaluations that were better than a guess, and that are worse at the end, from which the model has got worse."""
STARVED, STARVED_SHARE = 100, 0.1
"""Steps, and share of all, without any gradient at the end of a run, from which it no longer learns."""
SAME = 1e-6
"""Range of the losses at the end, against their level, up to which they are all the same."""
LOST_SHARE, LOST_PART = 0.5, 0.25
"""Shares of what was learnt, against a constant guess where that is known: one that is lost breaks a training, and one
that is lost in a jump is suspect if there is a second sign of harm."""
TIMES, LOST_ORDERS = 10.0, 0.5
"""Factor above the lowest level, and share of the orders of magnitude by which a loss had fallen, that a jump of a loss
without classes must undo. (A cross entropy near 0 is raised as much by any augmentation or smoothing of labels.)"""
APART, ALONE, APART_SHARE = 2.0, 2.5, 0.15
"""Factor by which a loss without classes lies above its level before a jump, with no overlap of the two, if there is a
second sign of harm, and if there is none, and share of what was learnt that is lost: in tests/faults/late augmentations
and regularisers raise a loss by a tenth at most, faults double it."""
LARGER = 1.5
"""Factor of the batch's size by which a sum over it grows."""
ENDLESS = 100.0
"""Factor of the first loss, below 0, at which a loss that was positive has no floor."""
CLEAR = 0.05
"""Share of the initial loss above which a loss that ends higher is said to have risen."""


@dataclass(frozen=True)
class Trouble:
    """The worst symptom of a training, as a person would see it."""

    kind: str
    """``nonfinite``, ``diverged``, ``relapsed`` (part of what was learnt is lost), ``still`` (no weight ever changed),
    ``stuck``, ``slow``, ``none``, ``unclear``, ``short`` or ``unseen``."""
    step: int | None = None
    phrase: str = ""
    """The symptom in words, without a full stop; empty if there is none."""
    guess: bool = False
    """True if the loss of a regression stays at that of a constant guess: a fault, or inputs that do not predict the
    targets."""

    @property
    def name(self) -> str:
        """The failure as a noun phrase; empty if there is none."""
        return NAMES.get(self.kind, "")

    @property
    def broke(self) -> bool:
        """Return True if the loss, weights or gradients became non-finite or the loss diverged."""
        return self.kind in ("nonfinite", "diverged")

    @property
    def any(self) -> bool:
        """Return True if there is a symptom."""
        return self.kind in KINDS


@dataclass(frozen=True)
class Relapse:
    """A loss that had fallen and returned to that of a constant guess for many steps."""

    step: int
    """First step back at the loss of a constant guess."""
    steps: int
    """Number of recorded losses near that of a constant guess."""
    low: float
    """Lowest level of the loss before."""


def relapse(run: RecordReadings) -> Relapse | None:
    """Return the relapse of a classification that lost all it had learnt; None if there is none."""
    # The guess is a fixed level only for one cross entropy of one optimizer.
    guess, y, at = guessing_loss(run), run.loss.finite.values, run.loss.finite.steps
    kinds = {term.kind for term in run.terms}
    if not guess > 0 or not run.alone or len(run.terms) != 1 or not kinds <= {"cross_entropy", "nll"}:
        return None
    if len(y) < 3 * LOST:
        return None
    # Something must have been learnt before it can be lost.
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(y, WINDOW), axis=1)
    down = np.flatnonzero(smooth < LEARNT * guess)
    if not len(down):
        return None
    # A short stretch near the guess is a spike: only the longest one, over a fifth of the run, counts.
    up = smooth[down[0] :] > NEAR_GUESS * guess
    edges = np.flatnonzero(np.diff(np.concatenate([[0], up.astype(np.int8), [0]])))
    spells = [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    first, last = max(spells, key=lambda spell: spell[1] - spell[0], default=(0, 0))
    if last - first < max(LOST, len(y) // 5):
        return None
    begin = int(down[0]) + first
    return Relapse(int(at[begin]), last - first, float(smooth[down[0] : begin].min()))


def find_trouble(run: RecordReadings) -> Trouble:
    """Return the worst symptom over all optimizers of the run."""
    # Non-finite values come first: a loss that diverges to infinity has both symptoms.
    origin = run.origin
    for stream in run.run.streams:
        loss = run.loss_of(stream)
        if loss.ends_nonfinite:
            step = loss.nonfinite_from
            value = "infinite" if step is not None and math.isinf(loss.series.at(step)) else "NaN"
            return Trouble("nonfinite", step, f"{run.loss_words(stream)} became {value} at step {step}")
    if origin is not None and _ruined(run):
        return Trouble("nonfinite", origin.step, f"weights or gradients became NaN or infinite at step {origin.step}")
    for stream in run.run.streams:
        if stream in run.rounds:
            continue
        loss = run.loss_of(stream)
        if loss.diverged:
            return Trouble("diverged", loss.diverged_from, _rose(run, stream))
    kind = _collapse(run)
    if kind:
        return Trouble(kind, run.loss.risen_from, _rose(run, run.stream))
    if (found := _runs_away(run) or _set_back(run)) is not None:
        return found
    if _still(run):
        steps = plural(run.run.steps or len(run.history), "step")
        return Trouble("still", int(run.history.steps[0]), f"no weight changed in {steps}")
    return _starved(run) or _evaluated(run) or _motionless(run) or _course(run)


def _motionless(run: RecordReadings) -> Trouble | None:
    """Return the symptom of one of several trainings, one after another, whose loss is the same number at every step,
    and not 0, while no gradient reaches a weight; None if there is none.
    """
    for training in run.trainings:
        loss = run.loss_of(training.stream).finite
        norms = run.scalar("grad_norm", training.stream).finite()
        if len(loss) < ENOUGH or not len(norms) or norms.values.any() or np.ptp(loss.values) or not loss.values[0]:
            continue
        said = f"{run.loss_words(training.stream)} is {number(float(loss.values[0]))} at each of {len(loss):,} steps"
        return Trouble("stuck", training.first, f"{said}, and no gradient reaches a weight")
    return None


def _runs_away(run: RecordReadings) -> Trouble | None:
    """Return the symptom of a loss that was never below 0 and falls without end: it is maximised, or has no floor."""
    loss = run.loss
    values, steps = loss.finite.values, loss.finite.steps
    if not loss.alone or len(values) < ENOUGH or not values[: len(values) // 10].min() >= 0:
        return None
    if not loss.last < -ENDLESS * max(loss.initial, loss.noise):
        return None
    at = int(np.flatnonzero(values >= 0)[-1]) + 1
    if values[:at].min() < 0:  # it went below before, and came back
        return None
    said = f"{run.loss_words()} was never below 0 up to step {int(steps[at - 1])}, and fell to {loss.ending} from there"
    return Trouble("diverged", int(steps[at]), said)


def _set_back(run: RecordReadings) -> Trouble | None:
    """Return the symptom of a loss that jumped at the very step at which the program changed something, and that has
    not come back to its level.
    """
    found = first_setback(run)
    if found is None:
        return None
    step, cost = found
    said = f"{run.loss_words()} was at {number(cost.before)}, jumped to {number(cost.after)} at step {step}"
    return Trouble("relapsed", step, f"{said}, and ends at {number(cost.end)}")


def _evaluated(run: RecordReadings) -> Trouble | None:
    """Return the symptom of an evaluation that was good and is worse than a guess from one time to the next, and stays
    so; None if there is none. Overfitting raises it, too, but by and by.
    """
    found, guess = run.scalar("eval_loss").finite(), guessing_loss(run)
    if len(found) < GOOD + BAD or not guess > 0 or not run.loss.alone:
        return None
    below = np.flatnonzero(found.values < guess)
    at = int(below[-1]) + 1 if len(below) else 0
    good = found.values[:at]
    if at < GOOD or len(found) - at < BAD or not good.min() < LOST_SHARE * guess:
        return None
    if good[-1] > good.min() + LOST_PART * (guess - good.min()):
        return None
    step, best = int(found.steps[at]), int(found.steps[int(good.argmin())])
    said = f"the loss in evaluation fell to {number(float(good.min()))} by step {best}, then jumped to"
    last = f"{number(float(found.values[-1]))} at the last time, above that of a guess ({number(guess)})"
    return Trouble("relapsed", step, f"{said} {number(float(found.values[at]))} by step {step}, and was {last}")


def _starved(run: RecordReadings) -> Trouble | None:
    """Return the symptom of a training that no gradient reaches any more, while its loss shows that there is more to
    learn; None if it learns to the end, or has come to rest.
    """
    rest, loss, guess = rest_of(run), run.loss, guessing_loss(run)
    if rest is None:
        return None
    # A loss with a floor, as a margin plus a constant, rests there: it is the lowest level, and the same in each batch.
    end = loss.finite.values[-loss.window :]
    varies = float(end.max() - end.min()) > SAME * abs(loss.last)
    if not (varies or loss.left_best or loss.last > NEAR_GUESS * guess):
        return None
    return Trouble("still", rest.step, f"no gradient has reached the weights {rest.since}, with {rest.level}")


@dataclass(frozen=True)
class Rest:
    """The end of a training that no gradient reaches, while its loss is not 0."""

    step: int
    since: str
    """The step in words: ``from step 700 on``."""
    level: str
    """The loss with its level: ``the loss at 0.4 (median of the last 50 losses)``."""


def rest_of(run: RecordReadings) -> Rest | None:
    """Return the end of a run that no gradient reaches, if it is long and its loss not 0; None if there is none."""
    norms, loss = run.scalar("grad_norm").finite(), run.loss
    flows = np.flatnonzero(norms.values != 0)
    if not loss.alone or not len(flows) or not len(loss.finite) or not loss.last > 0:
        return None
    rest = len(norms) - 1 - int(flows[-1])
    if rest < max(STARVED, STARVED_SHARE * len(norms)):
        return None
    # The norm is not read at every step.
    last, step = int(norms.steps[flows[-1]]), int(norms.steps[flows[-1] + 1])
    since = f"from step {step} on" if step == last + 1 else f"since a step between {last} and {step}"
    return Rest(step, since, f"{run.loss_words()} at {loss.ending}")


def _rose(run: RecordReadings, stream: int) -> str:
    """Write the whole course of a loss that rose, of which the end alone says little."""
    loss, words = run.loss_of(stream), run.loss_words(stream)
    fallen = loss.best < 0.95 * loss.initial
    top = float(loss.finite.values[loss.finite.steps >= (loss.risen_from if fallen else 0)].max())
    peak = f", with a peak of {number(top)}" if top > 10 * abs(loss.last) else ""
    if not fallen or len(loss.finite) < ENOUGH:
        begun = loss.lowest if fallen else number(loss.initial)
        return f"{words} rose from {begun} to {loss.ending} over {_steps(run)}{peak}"
    verb = "jumped" if loss.jumped else "rose"
    stayed = " and stayed there" if loss.stays else ""
    fell = f"{words} fell to {loss.lowest} by step {loss.best_step}"
    return f"{fell}, then {verb} to {loss.ending} from step {loss.risen_from} on{stayed}{peak}"


def _collapse(run: RecordReadings) -> str:
    """Return the symptom of a main loss that lost what it had learnt, however small that is against its first value:
    ``diverged``, ``relapsed``, or "" for none.
    """
    loss = run.loss
    if not loss.alone or not len(loss.finite) or loss.finite.values.min() < 0:
        return ""
    guess = guessing_loss(run)
    if guess > 0 and loss.lost(LOST_SHARE, guess):
        return "diverged"
    # Less than half is lost in a jump that lasts, while the loss is computed as before.
    if not (loss.jumped and loss.stays) or loss.redefined:
        return ""
    # Data that became harder, as by augmentation, raise the training loss and nothing else.
    if guess > 0 and loss.lost(LOST_PART, guess) and second_sign(run, loss.risen_from, loss.best_step):
        return "relapsed"
    classes = any(term.kind in CLASSES for term in run.terms)
    if classes or not loss.best > 0:
        return ""
    second = second_sign(run, loss.risen_from, loss.best_step)
    if loss.apart >= (APART if second else ALONE) and loss.lost(APART_SHARE, guess) and not _larger(run):
        return "relapsed"
    if not loss.lost(0.0) or loss.last < TIMES * loss.best:
        return ""
    orders = math.log(loss.last / loss.best) / math.log(loss.initial / loss.best)
    return "relapsed" if orders >= LOST_ORDERS else ""


def _larger(run: RecordReadings) -> bool:
    """Return True if the loss is a sum of more samples since it rose."""
    sizes, at = run.scalar("batch_size").finite(), run.loss.risen_from
    before, after = (some.values[-WINDOW:] for some in (sizes.between(0, at - 1), sizes.between(at, run.run.steps)))
    if not len(before) or not len(after) or all(term.reduction == "mean" for term in run.terms):
        return False
    return bool(np.median(after) > LARGER * np.median(before))


def _still(run: RecordReadings) -> bool:
    """Return True if no weight of the models ever changed: all their statistics are equal to the last digit."""
    history, sites = run.history, run.run.layout.sites
    rows = [i for i, site in enumerate(sites[: history.sites]) if site.kind == "param"]
    elsewhere = any(one.foreign > one.foreign_no_grad for one in run.optimizers)
    if not rows or len(history) < FEW or elsewhere or run.loss.learned:  # an image or a latent code is trained
        return False
    # Numbers by hand may be float64: their updates are seen where the weights, kept as float32, look the same.
    updates = list(run.layout.rows("update")) if run.by_hand else []
    if updates and (history.stat(updates, "rms", "max") > 0).any():
        return False
    values = [history.stat(rows, name) for name in ("mean", "rms", "min", "max")]
    seen = [value[np.isfinite(value).all(axis=1)] for value in values]
    return all(len(value) >= FEW and bool((value == value[:1]).all()) for value in seen)


def _course(run: RecordReadings) -> Trouble:
    """Return the symptom of a main loss that does not fall, or the reason that it has none."""
    loss = run.loss
    if not len(loss):
        return Trouble("unseen")
    guess = guessing_loss(run)
    if not loss.learned and loss.last < LEARNT_ALREADY * guess:
        return Trouble("none")
    moved = "rose" if loss.relative < -CLEAR else "hardly fell:" if loss.last < loss.initial else "did not fall:"
    span = f"{run.loss_words()} {moved} from {number(loss.initial)} to {loss.ending} over {_steps(run)}"
    if loss.stuck and loss.finite.values.min() >= 0:
        return Trouble("stuck", int(loss.series.steps[0]), span)
    if loss.slow and loss.finite.values.min() >= 0:
        return Trouble("slow", int(loss.series.steps[0]), span)
    if at_guess(run) and not loss.diverged:
        said = f"{run.loss_words()} settled at {loss.ending}, {_beside_guess(run, guess)}"
        weak = any(term.kind in ("mse", "squared_error") for term in run.terms)
        return Trouble("stuck", int(loss.series.steps[0]), said, guess=weak)
    if loss.learned or not loss.alone:
        return Trouble("none")
    return Trouble("short" if len(loss) < FEW else "unclear")


def _beside_guess(run: RecordReadings, guess: float) -> str:
    """Compare the level at the end with a guess that knows no input: with the best one, where the shares of the labels
    are known.
    """
    if any(term.kind in ("mse", "squared_error") for term in run.terms):
        return f"hardly better than a constant guess ({number(guess)})"  # the mean, which is the best one
    shares = label_entropy(run)
    if not shares > 0:
        return f"hardly better than a guess by chance ({number(guess)})"
    than = "hardly better" if run.loss.last < shares else "no better"
    return f"{than} than a constant guess from the shares of the labels ({number(shares)})"


def _steps(run: RecordReadings) -> str:
    return plural(run.run.steps or len(run.loss), "step")


def _ruined(run: RecordReadings) -> bool:
    """Return True if weights or gradients were non-finite when the run ended."""
    history, sites = run.history, run.run.layout.sites
    rows = [i for i, site in enumerate(sites[: history.sites]) if site.kind in ("param", "param_grad", "loss")]
    if run.scaled:
        rows = [i for i in rows if sites[i].kind == "param"]
    return bool(rows) and bool((history.stat(rows, "nonfinite")[history.read][-1:] > 0).any())


class Symptoms(RecordReadings):
    """The readings of a run with its symptoms, before any cause is weighed."""

    @property
    def learned(self) -> bool:
        """Return True if the main loss fell for good, and below that of a constant guess where that is known."""
        return self.loss.learned and not at_guess(self)

    @cached_property
    def trouble(self) -> Trouble:
        """The worst symptom of the run, as a person would see it."""
        return find_trouble(self)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Kinds of events in the run that are symptoms, and the kind that corresponds to the worst symptom."""
        seen = {event.kind for event in self.run.events if event.sure}
        if self.trouble.kind in KINDS:
            seen.add(KINDS[self.trouble.kind])
        return frozenset(seen)

    @cached_property
    def onset(self) -> int | None:
        """First step of the worst symptom or of the first non-finite value; None if there is no symptom."""
        if not self.trouble.any:
            return None
        steps = [s for s in (self.trouble.step, self.origin.step if self.origin else None) if s is not None]
        return min(steps) if steps else 0

    @cached_property
    def changes(self) -> tuple[ChangePoint, ...]:
        """Changes of the program shortly before the onset of the worst symptom, the latest first; empty for a symptom
        that was there from the beginning.
        """
        if self.onset is None or self.onset <= SETTLED:
            return ()
        best = self.loss.best_step
        return change_points(self, self.onset, best if best < self.onset else 0)

    def change(self, *what: str) -> ChangePoint | None:
        """Return the latest of those changes that is of one of these kinds; None if there is none."""
        return next((one for one in self.changes if one.what in what), None)

    @cached_property
    def rate(self) -> float:
        """The learning rate in force at the onset of the worst symptom; without one that is late, the first rate."""
        now = self.scalar("lr").finite().at(self.onset) if self.onset else float("nan")
        return now if now > 0 else self.lr

    @cached_property
    def blind(self) -> bool:
        """Return True if the training broke at a step whose sites were not read."""
        return self.onset is not None and self.trouble.broke and not self.was_read(self.onset)
