"""The data itself holds NaN or infinity.

What it is
    A batch contains values that are not numbers: missing entries of a table, a division by a standard deviation of
    zero in the preprocessing, a damaged file.

Symptoms
    The loss becomes NaN in the step that meets such a sample, and everything stays NaN from then on, because one
    step writes it into every weight.

Evidence
    The batch is read before the model sees it. It is the cause when the input is the earliest non-finite place of
    the run. A mask of minus infinities that the model handles does no harm and is not counted.

What to do
    Find and repair or drop the samples, and check the batch at the door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, UNITS, Cause
from neuraldbg.explain.evidence.inputs import birth
from neuraldbg.explain.evidence.targets import readings
from neuraldbg.explain.evidence.wording import number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

PLAIN = frozenset({"mse", "l1", "smooth_l1", "huber", "squared_error", "bce_with_logits"})
"""Losses that are finite for every finite prediction and target."""
HARMLESS = frozenset(
    {"mseloss", "smoothl1loss", "huberloss", "binarycrossentropywithlogits", "mean", "sum", "pow", "mul", "sub", "add",
     "abs", "neg", "squeeze", "view", "reshape", "expand", "unsqueeze", "select", "slice", "flatten", "transpose"}
)  # fmt: skip
"""Operations of a loss graph that give no NaN or infinity for numbers of usual size."""


def judge(case: Case) -> Finding | None:
    """Weigh non-finite values in inputs and targets, as recorded, as found in an experiment, or by elimination."""
    for row in case.layout.rows("input"):
        counts = case.run.series(row, "nonfinite", "max")
        hit = np.flatnonzero(counts.values > 0)
        if len(hit):
            step, count = int(counts.steps[hit[0]]), int(counts.values[hit[0]])
            leaf = case.layout.sites[row].name
            return _weigh(case, f"input {leaf!r}" if leaf else "input", step, count)
    for step, term in readings(case):
        if term.target is not None and term.target.nonfinite:
            return _weigh(case, "target", step, term.target.nonfinite)
    return _made_again(case) or _by_elimination(case)


def _made_again(case: Case) -> Finding | None:
    """Weigh the batch of a light step whose pass failed and was run again at once in an experiment."""
    origin, born = case.origin, birth(case, "input", "target")
    if origin is None or origin.read or born is None or born.step != origin.step:
        return None
    weigh, what = Weighing(), born.phase
    sample = f" in sample {born.sample}" if born.sample is not None else ""
    weigh.speaks(f"the loss of step {origin.step} was not finite, and the {what} of that step holds values that are "
                 f"NaN or infinite{sample}", 5.0, born.count, 0)  # fmt: skip
    weigh.speaks(f"the steps before step {origin.step} were finite", 2.0, origin.step)
    return _concluded(case, weigh, what, origin.step, sample)


def _by_elimination(case: Case) -> Finding | None:
    """Weigh a plain loss that is not finite for a finite prediction: then the target is not finite."""
    # Every other source must be excluded: inputs, activations, the loss function, its operations, overflow.
    origin = case.origin
    if origin is None or origin.has("input", "activation", "op") or not case.layout.rows("activation"):
        return None
    kinds = {term.kind for term in case.terms}
    lost = case.run.scalar("loss_nonfinite").at(origin.step)
    if not lost > 0 or not kinds or not kinds <= PLAIN or not set(case.loss_ops) <= HARMLESS:
        return None
    rows = list(case.layout.rows("activation"))
    seen = case.history.stat(rows, "count", "max")[origin.row] > 0
    if not seen.any() or (case.history.stat(rows, "nonfinite")[origin.row][seen] > 0).any():
        return None
    high = case.history.stat(rows, "max", "max")[origin.row][seen]
    low = case.history.stat(rows, "min", "min")[origin.row][seen]
    largest = float(max(abs(high).max(), abs(low).max()))
    if not largest < 1e15:  # a square of it overflows
        return None
    weigh, kind = Weighing(), "/".join(sorted(kinds))
    born = birth(case, "target")
    if born is None and any(term.target_dtype in ("float16", "half") for term in case.terms):
        return None  # a sum or a square of finite values outgrows float16
    # The target that autograd saved is direct evidence, where it was read.
    which = ""
    if born is not None and born.step == origin.step:
        which = f" in sample {born.sample}" if born.sample is not None else ""
        weigh.speaks(f"the target that autograd saved is not finite{which}", 3.0, origin.step)
    weigh.speaks(f"at step {origin.step} inputs and activations are finite (at most {number(largest)}), yet the loss "
                 "is not", 3.0, origin.step)  # fmt: skip
    weigh.speaks(f"a loss of this form ({kind}) is finite wherever prediction and target are: only the target is left",
                 2.5, kind)  # fmt: skip
    return weigh.conclude(
        f"NaN or infinite values in the data: the target of step {origin.step} holds some{which}",
        Remedy(
            "Repair or drop the samples, and stop at the door when one comes through.",
            "assert torch.isfinite(y).all(), 'bad target in this batch'",
        ),
        step=origin.step,
        failure=case.trouble.name or "non-finite data",
    )


def _weigh(case: Case, what: str, step: int, count: int) -> Finding:
    weigh, origin = Weighing(), case.origin
    weigh.speaks(f"the {what} of step {step} holds {plural(count, 'value')} that are NaN or infinite", 3.0, count, 0)
    # The order in time decides: the batch must be the first non-finite value, with the loss right after it.
    if origin is None:
        weigh.against("loss, gradients and weights stayed finite, so the model copes with them", 5.0)
    elif origin.step < step:
        weigh.against(f"something else was not finite before, at step {origin.step}", 6.0, origin.step, step)
    elif origin.step <= step + 1:
        weigh.speaks(
            f"it is the earliest non-finite place: loss and gradients follow at step {origin.step}",
            4.0,
            origin.step,
            step,
        )
    else:
        weigh.against(f"everything else stayed finite until step {origin.step}", 3.0, origin.step, step)
    born = birth(case, "input", "target")
    which = ""
    if born is not None and born.sample is not None and born.step == step:
        which = f", first in sample {born.sample}"
        weigh.speaks(f"sample {born.sample} of that batch is the first with such a value "
                     f"({plural(born.count, 'sample')} of the batch)", 0.5, born.sample)  # fmt: skip
    return _concluded(case, weigh, what, step, f": {count} of them{which}")


def _concluded(case: Case, weigh: Weighing, what: str, step: int, where: str) -> Finding:
    name = "y" if what == "target" else "x"
    return weigh.conclude(
        f"NaN or infinite values in the data: the {what} of step {step} holds some{where}",
        Remedy(
            "Repair or drop the samples, and stop at the door when one comes through.",
            f"assert torch.isfinite({name}).all(), 'bad sample in this batch'\n"
            f"keep = torch.isfinite({name}).flatten(1).all(dim=1)  # or drop them\nx, y = x[keep], y[keep]",
        ),
        step=step,
        failure=case.trouble.name or "non-finite data",
    )


CAUSE = Cause(
    module=__name__,
    title="NaN or infinity in the data",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | UNITS | {"nonfinite_input"},
    judge=judge,
    page=__doc__ or "",
)
