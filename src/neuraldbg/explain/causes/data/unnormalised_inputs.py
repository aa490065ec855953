"""Inputs are far from zero mean and unit scale, or their columns differ by orders of magnitude.

What it is
    Raw pixel values from 0 to 255, prices, years, or a table whose columns have different units are given to the
    first layer unscaled. The first layer's gradients grow with the inputs, so that no single learning rate fits
    all layers.

Symptoms
    Large activations and gradients in the first layers from the beginning; the loss blows up, jumps, or falls very
    slowly. A lower learning rate seems to help, but then the rest of the network hardly learns.

Evidence
    Mean, standard deviation and range of the batch are read before the model, for tables also column by column. A
    normalisation layer right after the input undoes the scale, and ids for an embedding have none; neither is a
    fault. A model that learns well on such inputs is left in peace, unless the inputs are far beyond those of raw
    pictures, reach the first layer unscaled, and do measurable harm: the first loss is many times that of a guess.
    Outputs that became one and the same for all samples are harm too, though the loss fell.

What to do
    Subtract the mean and divide by the standard deviation of the training set, column by column.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.explain.evidence.depth_profiles import gradient_profile, is_norm
from neuraldbg.explain.evidence.inputs import batches
from neuraldbg.explain.evidence.new_inputs import LARGE, SMALL
from neuraldbg.explain.evidence.wording import literal, number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.outputs import OutputsFact
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.record_readings import InputStats
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.batches import Columns

OFFSET = 5.0
"""|mean| / std beyond which the offset dominates."""
FAR_OFF = 20.0
"""|mean| / std beyond which a single column of a table has an offset: a year, a temperature in kelvin."""
EXTREME = 200.0
"""rms beyond that of raw images (0 to 255), with which networks often train well."""
UNLIKE = 1000.0
"""Ratio of the columns' standard deviations of a table in raw units; the largest must be far from unit scale, too."""
WILD = 10.0
"""Ratio of the loss to that of a constant guess, which an untrained network with sound inputs does not reach."""
COLLAPSED = 1e-3
"""Share of the first difference between samples' outputs, below which the outputs are one constant."""
_READINGS = 6
REACHES = 0.05
"""Share of the input's rms in the first layer's output, from which nothing has scaled the input before."""
UNEVEN = 100.0
"""Ratio of the columns' standard deviations beyond which they differ by orders of magnitude."""


def judge(case: Case) -> Finding | None:
    """Weigh the scale of each float input."""
    if (late := _since(case)) is not None:
        return late
    if _takes_ids(case) or any(fact.grid in ("twice", "shrunk", "faint") for fact in batches(case)):
        return None  # ids have no scale; inputs that were scaled twice are double_normalisation
    findings = [_weigh(case, stats) for stats in case.inputs if not stats.integer]
    real = [found for found in findings if found is not None]
    return max(real, key=lambda found: found.log_odds) if real else None


def _weigh(case: Case, stats: InputStats) -> Finding | None:
    weigh = Weighing()
    first_input = stats.leaf in ("", "0", "x", "input")
    columns = next((fact.columns for fact in batches(case)), None) if first_input else None
    what = _scale(stats, weigh, columns)
    if not what:
        return None
    # The scale is a fact; it is a fault only if no layer normalises it and the training suffers.
    _absorbed(case, weigh, mixed=_unlike(stats))
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5 if case.trouble.broke else 1.2)
    elif not _collapsed(case, stats, weigh) and not _extreme(case, stats, weigh):
        weigh.against("the training runs well on them", 4.0)
    _first_layer(case, weigh)
    name = f"input {stats.leaf!r}" if stats.leaf else "input"
    first = next((w.layer.path for w in case.weights), None)
    scaled = f"x = (x - {literal(stats.mean)}) / {literal(stats.std or 1.0)}"
    per_column = stats.columns is not None
    return weigh.conclude(
        f"inputs that are not normalised: the {name} {what}",
        Remedy(
            "Standardise the inputs with the statistics of the training set, also when the model is used later.",
            "mean, std = x_train.mean(0), x_train.std(0).clamp_min(1e-6)\nx = (x - mean) / std"
            if per_column
            else scaled,
            () if per_column else (before("forward", scaled),),
        ),
        layer=first,
        step=0,
        failure=case.trouble.name or "badly scaled inputs",
    )


def _since(case: Case) -> Finding | None:
    """Weigh inputs that come in other units in mid-run, and far from unit scale."""
    change = case.new_inputs
    if change is None or change.constant or not change.spoilt:
        return None
    weigh = Weighing()
    change.weigh(weigh, 5.0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5 if case.trouble.broke else 1.2)
    else:
        weigh.against("the training gets over it, though its model may be of no use on inputs as before", 1.0)
    mean, std = change.before.mean, change.before.std or 1.0
    return weigh.conclude(
        f"inputs that are not normalised: {change.said}",
        Remedy(
            "Look at what comes from that step on, another file or shard: give it the units of the data before, and "
            "normalise it with the same numbers.",
            f"print(x.mean(), x.std())  # {literal(mean)} and {literal(std)} before that step",
        ),
        step=change.until,
        since=change.since,
        failure=case.trouble.name or "badly scaled inputs",
    )


def _scale(stats: InputStats, weigh: Weighing, columns: Columns | None) -> str:
    """Weigh the distance of the input from unit scale. Return it in words, empty if it is not far."""
    # Scale, offset and uneven columns are separate faults; a single column only counts if there is no other.
    said = []
    if stats.rms > LARGE or 0 < stats.rms < SMALL:
        orders = abs(math.log10(stats.rms / (LARGE if stats.rms > LARGE else SMALL)))
        weigh.speaks(
            f"its values have an rms of {number(stats.rms)} (from {number(stats.low)} to {number(stats.high)})",
            min(1.5 + 1.2 * orders, 4.0), stats.rms, LARGE if stats.rms > LARGE else SMALL,
        )  # fmt: skip
        said.append(f"ranges from {number(stats.low)} to {number(stats.high)}")
    if stats.std > 0 and abs(stats.mean) / stats.std > OFFSET:
        weigh.speaks(f"its mean is {number(stats.mean)} with a standard deviation of {number(stats.std)}", 1.5,
                     abs(stats.mean) / stats.std, OFFSET)  # fmt: skip
        said.append(f"has a mean of {number(stats.mean)} and a standard deviation of {number(stats.std)}")
    if stats.columns is not None and stats.columns[0] > 0 and stats.columns[1] / stats.columns[0] > UNEVEN:
        ratio = stats.columns[1] / stats.columns[0]
        low, high = number(stats.columns[0]), number(stats.columns[1])
        weigh.speaks(f"its columns have standard deviations from {low} to {high}", 2.0,
                      ratio, UNEVEN)  # fmt: skip
        said.append(f"has columns that differ {number(ratio)} times in scale")
    if not said and columns is not None and columns.offset > FAR_OFF:
        weigh.speaks(
            f"its column {columns.worst} has a mean of {number(columns.worst_mean)} with a standard deviation of "
            f"{number(columns.worst_std)}", 1.5, columns.offset, FAR_OFF,
        )  # fmt: skip
        said.append(f"has a column ({columns.worst}) whose offset is {number(columns.offset)} times its spread")
    return " and ".join(said)


def _unlike(stats: InputStats) -> bool:
    """Return True if a table has columns in raw units beside others a thousand times smaller."""
    low, high = stats.columns or (0.0, 0.0)
    return low > 0 and high / low > UNLIKE and high > EXTREME / 2


def _extreme(case: Case, stats: InputStats, weigh: Weighing) -> bool:
    """Weigh the effect of inputs far beyond any usual scale on a training without a symptom."""
    unlike = _unlike(stats)
    if (not unlike and stats.rms <= EXTREME) or case.sound_init is False:
        return False
    first = case.activations.values[0] if len(case.activations) else 0.0
    if not first > REACHES * stats.rms:
        return False  # something scales the inputs before they reach the first layer
    guess, began, best = guessing_loss(case), case.loss.initial, case.loss.best
    if not guess > 0 or not len(case.loss):
        return False
    if began > WILD * guess:
        weigh.speaks(f"the first loss is {number(began)}, that of a constant guess {number(guess)}: such inputs "
                     "drive the untrained outputs far off", 1.5, began, WILD * guess)  # fmt: skip
    if best > guess:
        said = f"the loss never got below that of a constant guess ({number(guess)}); its lowest level was"
        weigh.speaks(f"{said} {case.loss.lowest}", 1.0, best, guess)
    elif not case.learned:
        weigh.speaks(f"the loss does not fall: {case.loss.course}", 1.0, case.loss.relative)
    else:
        weigh.against(f"the loss falls anyway, {case.loss.course}", 0.5 if unlike else 1.0, case.loss.relative)
    return began > WILD * guess or best > guess or (unlike and not case.learned)


def _collapsed(case: Case, stats: InputStats, weigh: Weighing) -> bool:
    """Weigh outputs that became one constant, which a loss that fell at first can hide."""
    found: dict[str, list[float]] = {}
    for _, fact in case.run.versions(OutputsFact):
        for one in fact.outputs:
            found.setdefault(f"{fact.part}:{one.leaf}", []).append(one.across)
    courses = [course for course in found.values() if len(course) >= _READINGS]
    if stats.rms <= LARGE or len(courses) != 1 or not courses[0][0] > 0:
        return False
    began, ended = courses[0][0], max(courses[0][-3:])
    if not ended < COLLAPSED * began:
        return False
    weigh.speaks(
        f"the outputs for different samples, which differed by {number(began)} at first, came to differ by "
        f"{number(ended)}: the model answers one constant", 3.0, ended / began, COLLAPSED,
    )  # fmt: skip
    return True


def _absorbed(case: Case, weigh: Weighing, *, mixed: bool) -> None:
    """Weigh a normalisation layer near the input, which cancels its scale; after the first layer it cannot separate
    mixed columns.
    """
    leaves = [layer for layer in case.ordered if layer.leaf and layer.path in (case.layout.called or {layer.path})]
    first = [is_norm(layer) for layer in leaves[:2]]
    if first and first[0]:
        weigh.against(f"the first layer ({leaves[0].type}) normalises the input", 4.0, leaves[0].path)
    elif len(first) > 1 and first[1] and not mixed:
        weigh.against(f"a {leaves[1].type} follows the first layer and undoes the scale", 2.5, leaves[1].path)


def _first_layer(case: Case, weigh: Weighing) -> None:
    """Weigh the gradient of the first weight matrix, which dominates with large inputs."""
    profile = gradient_profile(case, "param_grad")
    if len(profile) < 3:
        return
    rest = float(np.median(profile.values[1:]))
    if rest > 0 and profile.values[0] > 10 * rest:
        ratio = float(profile.values[0]) / rest
        weigh.speaks(
            f"gradients of {called(profile.layers[0])} are {number(ratio)} times those of the other layers",
            0.8,
            ratio,
            10.0,
        )


def _takes_ids(case: Case) -> bool:
    """Return True if the inputs go into an embedding."""
    first = next((layer for layer in case.ordered if layer.leaf and layer.params), None)
    return first is not None and first.type.startswith("Embedding")


CAUSE = Cause(
    module=__name__,
    title="Inputs not normalised",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    entails=frozenset({"saturating_activation"}),
    page=__doc__ or "",
)
