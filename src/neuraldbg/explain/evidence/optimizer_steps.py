"""Settings and steps of the main optimizer: weight decay, the lag of Adam's second moment, updates against the
gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from neuraldbg.explain.evidence.change_points import OUTSIDE
from neuraldbg.explain.evidence.depth_profiles import is_norm
from neuraldbg.explain.evidence.wording import number
from neuraldbg.nouns.facts.optimizer_state import OptimizerStateFact
from neuraldbg.nouns.facts.targets import TargetsFact

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Weighing

    Floats = npt.NDArray[np.float64]

MATRICES = 24
"""Largest number of weights that are read, evenly spaced over the depth."""
ATTENTION_WORDS = ("Attention", "Transformer", "Attn")
CLIMBS = 8
"""Number of first readings of the update's direction that are used."""
CLIMBING = 0.3
"""Cosine with the gradient from which updates go along the gradient; large momentum causes that too, but not from the
start."""
POOR = 0.97
"""Share of the loss of a model that only knows the class frequencies, above which nothing was learnt from inputs."""
LONG = 100
"""Steps after which a model should know more than the frequencies of its classes."""
RISE = 2.0
"""Ratio of the loss within ten steps to the first one, above which the first updates did harm."""
LARGE = 0.1
"""norm(update) / norm(weight) from which a step is too large; 1e-3 is healthy (Karpathy, CS231n notes)."""
DEEP = 8
"""Number of weight matrices from which a network counts as deep here."""


def setting(case: Case, name: Literal["momentum", "weight_decay"]) -> float:
    """Return the largest value of a setting over the parameter groups; NaN if no group is known."""
    return max((float(getattr(group, name)) for group in case.groups), default=float("nan"))


def betas(case: Case) -> tuple[float, float] | None:
    """Return Adam's betas; None for an optimizer without betas."""
    for group in case.groups:
        if isinstance(group.betas, tuple) and len(group.betas) >= 2:
            return float(group.betas[0]), float(group.betas[1])
    return None


def momentum(case: Case) -> float:
    """Return SGD's momentum or Adam's first beta; NaN if there is none."""
    plain = setting(case, "momentum")
    both = betas(case)
    return plain if plain > 0 else both[0] if both is not None else float("nan")


def decoupled(case: Case) -> bool:
    """Return True if weight decay is decoupled: lr * wd * w beside the gradient's step, not part of the gradient."""
    name = case.optimizer_name.lower()
    return any(group.decoupled_weight_decay for group in case.groups) or "adamw" in name or name == "lion"


def attentive(case: Case) -> bool:
    """Return True if the model has attention, by its layers' types or by the operations between them."""
    named = any(word in layer.type for layer in case.layout.layers for word in ATTENTION_WORDS)
    return named or any("scaleddotproduct" in op for edge in case.layout.edges for op in edge.ops)


def weight_rows(case: Case, *, norms: bool = False) -> list[int]:
    """Return rows of ``param`` sites of weight matrices, or of gains of normalisation layers, in data-flow order."""
    found = []
    for layer in case.ordered:
        if is_norm(layer) != norms:
            continue
        found += [row for row in case.layout.rows("param", layer.path) if "weight" in case.layout.sites[row].name]
    found = [row for row in found if row < case.history.sites]
    if len(found) > MATRICES:
        found = [found[i] for i in np.linspace(0, len(found) - 1, MATRICES).round().astype(int)]
    return found


@dataclass(frozen=True)
class Shrinking:
    """The effect of weight decay on the size of one weight."""

    label: str
    layer: str
    kept: float
    """Size (rms) at the end over that at the beginning."""
    strength: float
    """Ratio of the decay's step to the gradient's, median over the steps until the weight was halved, or over all."""
    predicted: float
    """Size that decay alone would have left, as a share of that at the beginning; NaN if unknown."""


def shrinking(case: Case, *, norms: bool = False, since: int = 0) -> list[Shrinking]:
    """Return the effect of weight decay on each weight, from the last reading up to a step on; empty without weight
    decay.
    """
    # Coupled decay in an adaptive optimizer is rescaled with the gradient, so what it alone would leave is unknown.
    decay, lr = setting(case, "weight_decay"), case.lr
    if not decay > 0 or not lr > 0:
        return []
    apart = decoupled(case)
    rates = case.scalar("lr").finite().between(since, case.steps_taken)
    left = float(np.exp(-decay * np.sum(rates.values * rates.width))) if apart or not case.adaptive else float("nan")
    found = []
    for row in weight_rows(case, norms=norms):
        site = case.layout.sites[row]
        size = case.run.series(row, "rms").finite()
        if len(size) and since:
            begin = max(0, int(np.searchsorted(size.steps, since, "right")) - 1)
            size = size.between(int(size.steps[begin]), case.steps_taken)
        against = case.layout.rows("update" if apart else "param_grad", site.module, site.name)
        if len(size) < 2 or not size.values[0] > 0 or not against:
            continue
        other = case.run.series(against[0], "rms").finite()
        # Both steps must be in the same unit: of an update the decay's step is subtracted, a gradient has none in it.
        steps, mine, theirs = np.intersect1d(size.steps, other.steps, return_indices=True)
        if not len(steps):
            continue
        pull = decay * size.values[mine] * (lr if apart else 1.0)
        push = other.values[theirs]
        if apart:
            push = _gradient_part(push, pull)
        push = np.maximum(push, 1e-30)
        # Once a weight is small its decay is weak, too: the ratio is taken while it shrinks.
        until = np.flatnonzero(size.values[mine] < 0.5 * size.values[0])
        upto = slice(0, int(until[0]) + 1 if len(until) else None)
        strength = float(np.median((pull / push)[upto]))
        late = case.held(size).values
        last = float(np.median(late[-max(1, len(late) // 20) :]))
        found.append(Shrinking(site.label, site.module, last / float(size.values[0]), strength, left))
    return found


def _gradient_part(update: Floats, pull: Floats) -> Floats:
    """Return the size of the gradient's step in updates that include the decay's step as well.

    The two are assumed to be orthogonal. An update much smaller than the decay's step shows that the gradient opposes
    the decay.
    """
    rest = np.sqrt(np.maximum(update**2 - pull**2, (0.2 * pull) ** 2))
    return np.where(update < 0.7 * pull, pull, rest)


def lag(case: Case, beta2: float) -> tuple[npt.NDArray[np.int64], Floats, list[str]]:
    """Return steps, and for each the largest rms(g) / sqrt(v) over the weights, with the weight's layer.

    v is computed from the recorded sizes of the gradients as Adam computes it from the gradients, bias corrected. The
    ratio can reach sqrt(1 / (1 - beta2)) after many steps with small gradients. In steps that were not read gradients
    are assumed to be as large as the larger one of those around them, so the result is a lower bound of the lag.
    """
    worst: Floats | None = None
    steps, layers = np.zeros(0, np.int64), []
    for row in weight_rows(case):
        site = case.layout.sites[row]
        rows = case.layout.rows("param_grad", site.module, site.name)
        size = case.run.series(rows[0], "rms") if rows else None
        if size is None or len(size) < 20 or (size.width > 1).any():
            continue
        ahead = np.diff(case.rank(size), prepend=-1) if case.skips else np.ones(len(size), np.int64)
        ratio = _lag(np.nan_to_num(size.values), ahead, beta2)
        if worst is None or len(ratio) != len(worst):
            if worst is None:
                worst, steps, layers = ratio, size.steps, [site.module] * len(ratio)
            continue
        layers = [site.module if ratio[i] > worst[i] else layers[i] for i in range(len(ratio))]
        worst = np.maximum(worst, ratio)
    return steps, worst if worst is not None else np.zeros(0), layers


def _lag(sizes: Floats, ahead: npt.NDArray[np.int64], beta2: float) -> Floats:
    """Return rms(g) / sqrt(v) of each reading. ``ahead`` is the number of steps since the reading before, 1 if no step
    between was unread.
    """
    found, v, step, before = np.zeros(len(sizes)), 0.0, 0, 0.0
    for i, g in enumerate(sizes):
        unread = int(ahead[i]) - 1
        if unread:
            kept = beta2**unread
            v = kept * v + (1 - kept) * max(g, before) ** 2
        step, before = step + unread + 1, g
        v = beta2 * v + (1 - beta2) * g * g
        hat = v / (1 - beta2**step)
        found[i] = g / np.sqrt(hat) if hat > 0 else 0.0
    return found


def below_eps(case: Case) -> tuple[float, OptimizerStateFact | None]:
    """Return the share of elements with sqrt(v) below epsilon (median over the readings), and the latest reading."""
    facts = [state for _, state in case.run.versions(OptimizerStateFact, stream=case.stream)]
    shares = [state.below_eps for state in facts if state.below_eps is not None]
    return float(np.median(shares)) if shares else float("nan"), facts[-1] if facts else None


def climbs(case: Case) -> bool:
    """Return True if the first updates go along the gradient: an optimizer with a wrong sign, or one that maximises.

    Only readings up to the onset count. In such a run sizes of steps and layers are consequences and say nothing.
    """
    read = case.scalar("descent").finite()
    values = (read.between(0, case.onset) if case.onset else read).values[:CLIMBS]
    return len(values) >= 2 and bool(np.median(values) < -CLIMBING)


def changed_outside(case: Case) -> tuple[int, float] | None:
    """Return the first step before which the program itself changed weights by more than ``OUTSIDE``, and the change as
    a share of their size; None if there is none.

    In a run that broke only changes up to the onset count. Loading, averaging and clipping of weights stay below it.
    """
    found = case.scalar("outside").finite()
    end = case.onset + 1 if case.trouble.broke and case.onset is not None else None
    for step, value in zip(found.steps, found.values, strict=True):
        if value > OUTSIDE and (end is None or step <= end):
            return int(step), float(value)
    return None


def poor(case: Case) -> float:
    """Return the last level of the loss over that of a model that only knows the class frequencies; NaN if unknown.

    Known for one cross entropy over plain class ids, in a run that is long enough.
    """
    facts = [fact for _, fact in case.run.versions(TargetsFact) if fact.entropy]
    loss = case.loss
    if not facts or not facts[-1].alone or len(case.terms) != 1 or len(loss.finite) < LONG:
        return float("nan")
    term = case.terms[0]
    if term.kind not in ("cross_entropy", "nll") or term.reduction != "mean" or term.weighted:
        return float("nan")
    entropy = facts[-1].entropy
    return loss.last / entropy if entropy is not None and entropy > 0 else float("nan")


def weigh_poverty(case: Case, weigh: Weighing, weight: float) -> None:
    """Add that the loss is still above that of a model that only knows the class frequencies."""
    weigh.speaks(
        f"after {case.steps_taken} steps the loss of {case.loss.ending} is still above what the frequencies of the "
        "classes alone give", weight, poor(case), POOR,
    )  # fmt: skip


def weigh_trouble(case: Case, weigh: Weighing) -> None:
    """Weigh the symptom of the training, or a loss that learnt nothing from its inputs; neither speaks against."""
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    elif poor(case) > POOR:
        weigh_poverty(case, weigh, 1.2)
    else:
        weigh.against("the training is not in trouble", 2.5)


def uphill(case: Case) -> tuple[float, int]:
    """Return the share of full steps whose update went along the gradient instead of against it, and the number of
    steps read.
    """
    values = case.scalar("descent").finite().values
    return float((values < -0.05).mean()) if len(values) else float("nan"), len(values)


def weigh_blind(case: Case, weigh: Weighing, weight: float = 0.8) -> None:
    """Add evidence against where the step at which a training broke was not read: its batch may have been unlike the
    others.
    """
    if case.blind:
        weigh.against(
            f"of step {case.onset}, where it broke, only loss and gradient norm were read: its batch may have been "
            "unlike the others", weight, case.onset,
        )  # fmt: skip


def weigh_bearing(case: Case, weigh: Weighing) -> None:
    """Weigh whether the learning rate fits gradients that are a sum where a mean is usual."""
    if case.loss.early_rise > RISE and np.fmax(case.first_update_ratio, case.early_update_ratio) > LARGE:
        weigh.speaks(
            f"within ten steps the loss rose to {number(case.loss.early_rise)} times its first value", 1.5,
            case.loss.early_rise, RISE,
        )  # fmt: skip
        weigh.against("the training gets over it", 2.5)
    else:
        weigh.against("the training runs well, so the learning rate fits the sum", 5.0)
