"""The network loses its ability to learn: each new task ends worse than the one before, and units fall silent.

What it is
    When the task or the data change again and again (continual learning, reinforcement learning), more and more units
    stop firing for any input. The other units learn new tasks more slowly; a fresh network would do better.

Symptoms
    The loss jumps at each change, which is normal, but ends each phase higher than the last.

Evidence
    The phases are read from the jumps of the loss, the silent units from the activations. Both must grow together:
    later tasks that are just harder leave the units alone, and where units die once, at a jump of the learning rate,
    their number does not grow from phase to phase.

What to do
    Reset units that stay silent, regularise towards the initial weights, use LeakyReLU or layer normalisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence.record_readings import RELU_TYPES
from neuraldbg.explain.evidence.silent_units import dead_units
from neuraldbg.explain.evidence.task_phases import phases
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.task_phases import Phase
    from neuraldbg.explain.finding import Finding

PHASES = 4
"""Least number of phases for a trend."""
RISING = 0.7
"""Least share of the changes from phase to phase that are for the worse."""
SILENT = 0.3
"""Least share of silent units at the end that matters (Sokar et al. 2023, "The dormant neuron phenomenon")."""
GROWTH = 0.2
WORSE = 0.2
"""Least rise from the end of the first phases to that of the last, as a share of the largest fall of the loss."""


def judge(case: Case) -> Finding | None:
    """Weigh the loss at the end of each phase, and the silent units, over a run whose task changes."""
    found = phases(case.loss)
    if len(found) < PHASES or case.trouble.kind == "nonfinite":
        return None
    # Single phases may be harder than others: the trend over all of them counts.
    ends = np.asarray([phase.end for phase in found])
    third = max(1, len(ends) // 3)
    begin, end = float(ends[:third].mean()), float(ends[-third:].mean())
    span = max(case.loss.initial - float(ends.min()), 1e-12)
    if end - begin < WORSE * span or float(np.mean(np.diff(ends) > 0)) < RISING:
        return None
    layer, silent = _silent(case, found)
    if layer is None:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{len(found)} phases of the loss were seen; the first ended at {number(begin)}, the last at {number(end)}",
        2.3,
        end, begin,
    )  # fmt: skip
    weigh.speaks(
        f"silent units of {called(layer)} grew from {percent(silent[0])} to {percent(silent[-1])} meanwhile",
        2.2 + (0.8 if silent[-1] > 0.5 else 0.0), silent[-1], SILENT,
    )  # fmt: skip
    if float(np.mean(np.diff(silent) >= 0)) >= RISING:
        weigh.speaks("they grow from phase to phase", 0.5, len(silent), PHASES)
    return weigh.conclude(
        f"units that fall silent as the task changes: {percent(silent[-1])} of {called(layer)}, and each phase ends "
        "worse",
        Remedy(
            "Reset silent units at each change of the task, and use an activation that does not die.",
            f"layer = model.get_submodule({layer!r})\n"
            "# activation: torch.nn.LeakyReLU(0.01); before it: torch.nn.LayerNorm(width)\n"
            "optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)",
        ),
        layer=layer,
        step=found[1].first,
        failure="loss of plasticity",
    )


def _silent(case: Case, found: tuple[Phase, ...]) -> tuple[str | None, list[float]]:
    """Return the ReLU layer whose silent units grew most over the phases, with their share at the end of each phase;
    None if no layer's grew enough.
    """
    best: tuple[str | None, list[float]] = (None, [])
    for row in case.layout.rows("activation"):
        path = case.layout.sites[row].module
        if not case.follows(path, RELU_TYPES):
            continue
        silence = dead_units(case, row)
        at = [silence.share[(silence.steps >= phase.first) & (silence.steps <= phase.last)] for phase in found]
        if any(not len(part) for part in at):
            continue
        ends = [float(part[-1]) for part in at]
        grown = ends[-1] - ends[0]
        if ends[-1] >= SILENT and grown >= GROWTH and (not best[1] or grown > best[1][-1] - best[1][0]):
            best = (path, ends)
    return best


CAUSE = Cause(
    module=__name__,
    title="Model loses its ability to learn new tasks",
    tier=Tier.STATISTICAL,
    explains=STALL | UNITS | {"loss_divergence", "loss_spike"},
    judge=judge,
    page=__doc__ or "",
)
