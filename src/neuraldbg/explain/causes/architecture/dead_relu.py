"""ReLU units are negative for all data: they output zero and get no gradient.

What it is
    A ReLU unit whose input is negative for every sample gives zero and passes no gradient back, so it can never
    recover. A strongly negative bias, a bad initialisation or one too large step can push most of a layer there.

Symptoms
    A layer's output is mostly zeros, the loss stops falling; if a whole layer is dead nothing before it learns any
    more and the output is constant.

Evidence
    Units are counted that were positive in none of the rows (images, tokens) read over 20 steps or more, 300 rows at
    least, and layers whose whole output is zero. Some dead units are usual in a healthy network. If they were dead
    from the first step, it is the initialisation or the bias; if they died after steps that were too large, the
    learning rate is the cause and the dead units are its consequence.

What to do
    Use LeakyReLU or GELU, zero biases with He initialisation, or a normalisation layer before the ReLU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import exchanged, once_made
from neuraldbg.explain.evidence.record_readings import RELU_TYPES
from neuraldbg.explain.evidence.silent_units import dead_units
from neuraldbg.explain.evidence.wording import moved, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.silent_units import Ints, Silence
    from neuraldbg.explain.finding import Finding

MANY = 0.5
"""Share of dead units from which a layer is faulty (SageMaker Debugger's and TheDeepChecker's default)."""


@dataclass(frozen=True)
class Dying:
    """The share of dead units of one layer, at the beginning and at the end."""

    layer: str
    begin: float
    """Share at the first reading that is known, if these units were silent from the first step read on, else 0."""
    end: float
    """Share over the last quarter of the recorded steps, median."""
    step: int
    """First step from which on more than MANY of the units were silent."""
    said: str
    """Sentence with the rows or values that were read."""


def judge(case: Case) -> Finding | None:
    """Weigh the dead units of the worst ReLU layer."""
    worst = max(_layers(case), key=lambda d: (d.end, -case.depth(d.layer)), default=None)
    if worst is None or worst.end < MANY:
        return None
    weigh = Weighing()
    whole = worst.end >= 0.995
    weigh.speaks(
        worst.said + (", so no gradient passes" if whole else ""),
        3.5 if whole else 1.5 + 2.5 * (worst.end - MANY) / (1 - MANY), worst.end, MANY,
    )  # fmt: skip
    # Units that died after large updates are a consequence of those.
    if worst.begin >= 0.8 * worst.end:
        weigh.speaks("they were dead from the first step on", 1.5, worst.begin, MANY)
    else:
        _weigh_death(case, weigh, worst)
    if case.trouble.kind in ("stuck", "slow"):
        weigh.speaks(case.trouble.phrase, 1.0)
    elif case.learned:
        weigh.against(
            f"the model learns: the loss fell by {percent(case.loss.relative)}",
            3.5 if not whole else 1.0,
            case.loss.relative,
        )
    else:
        weigh.against("the loss shows no consequence", 1.0)
    return weigh.conclude(
        f"ReLU units that are dead: {percent(worst.end)} of {called(worst.layer)} output zero in all rows read",
        _remedy(case, worst.layer),
        layer=worst.layer,
        step=worst.step,
        failure=case.trouble.name or "dead units",
    )


def _remedy(case: Case, path: str) -> Remedy:
    """Return the remedy: an activation that does not die, and a fresh start of the layer that feeds it."""
    before = [edge.source for edge in case.layout.edges if edge.target == path]
    fed = [case.layout.by_path[one] for one in (path, *before) if one in case.layout.by_path]
    source = next((layer for layer in fed if layer.params), None)
    lines = [exchanged(case, path, "torch.nn.LeakyReLU(0.01)")]
    if source is not None:
        lines.append(f"layer = model.get_submodule({source.path!r})")
        if source.path in {weight.layer.path for weight in case.weights}:
            lines.append('torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")')
        if "bias" in source.params:
            lines.append("torch.nn.init.zeros_(layer.bias)")
    code = "\n".join(line for line in lines if line)
    return Remedy(
        "Let units recover: LeakyReLU or GELU, zero biases with He initialisation, or a normalisation layer.",
        code,
        (once_made(code),),
    )


def _weigh_death(case: Case, weigh: Weighing, worst: Dying) -> None:
    ratio = case.scalar("update_ratio").finite().between(0, worst.step).values
    if len(ratio) and ratio.max() > 0.05:
        weigh.against(
            f"they died by step {worst.step}, after updates as large as {moved(float(ratio.max()))}: "
            "that points at the learning rate", 3.0, float(ratio.max()), 0.05,
        )  # fmt: skip
    else:
        weigh.speaks(f"they died by step {worst.step} without large updates", 0.3, worst.step)


def _layers(case: Case) -> list[Dying]:
    """Return the share of dead units of each ReLU layer, at the first and over the last recorded steps."""
    found = []
    for row in case.layout.rows("activation"):
        path = case.layout.sites[row].module
        if not case.follows(path, RELU_TYPES):
            continue
        silence = dead_units(case, row)
        if len(silence):
            tail = max(1, len(silence) // 4)
            over = np.flatnonzero(silence.share >= MANY)
            first = silence.since(0) <= int(case.run.series(row, "count").steps[0])
            begin, end = float(silence.share[0]) * first, float(np.median(silence.share[-tail:]))
            step = silence.since(int(over[0])) if len(over) else int(silence.steps[-1])
            found.append(Dying(path, begin, end, step, _said(path, silence, over)))
    return found


def _said(path: str, silence: Silence, over: Ints) -> str:
    """Return the newest reading with many dead units as a sentence, with its steps and rows."""
    if not len(over):
        return ""
    last = int(over[-1])
    span = f"steps {silence.since(last):,} to {int(silence.steps[last]):,}"
    if silence.whole[last]:
        return f"every output of {called(path)} that was read in {span} is 0"
    rows = f"the {int(silence.rows[last]):,} rows read in {span}" if silence.rows[last] else "the rows read"
    return f"{percent(silence.share[last])} of the units of {called(path)} were positive in none of {rows}"


CAUSE = Cause(
    module=__name__,
    title="Dead ReLU units",
    tier=Tier.STATISTICAL,
    explains=STALL | {"dead_units"},
    judge=judge,
    page=__doc__ or "",
)
