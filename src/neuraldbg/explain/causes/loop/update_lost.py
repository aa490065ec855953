"""The step runs, but its update never arrives in a weight, or is undone before the next step.

What it is
    A weight has a gradient, its optimizer steps with a learning rate above 0, and still the weight is afterwards, to
    the last bit, what it was. Typical reasons: a kernel that fails silently on a tensor that is not contiguous, an
    optimizer that skips the tensor, or code that overwrites the weight after each step (from a copy, with ``.data``, or
    by loading an old state).

Symptoms
    If it is one layer, the rest trains around it and the result is just worse. If it is all of them, the loss stays at
    its level and only jitters.

Evidence
    Each weight is compared before and after each step, and with the next step. A weight that does not change although
    its gradient is not 0 has lost its update; one that changes in each step and begins the next as it was is
    overwritten; it may begin to be so in mid-run, as after a checkpoint that is loaded in each step. Steps too small
    for the number format are left out (that is bf16_update_lost), and so are learning rates of 0, frozen parameters and
    rows of an embedding that no batch uses.

What to do
    Make the tensor contiguous, and look for code that writes to it after the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.weight_writes import WRITES, search, weigh_lines, writing_lines
from neuraldbg.explain.evidence.wording import a_step, listing, number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.params import ParamsFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.kinds import SourceLine

STEPS = 8
"""Least number of steps with a gradient."""
ROUNDING = 1e-6
"""Step relative to the weight below which float32 (2**-24) may round it away."""
ALWAYS = 0.9
"""Least share of the steps that begin with the values of the step before."""
NOISES = 3.0
"""Standard errors by which a loss must fall to be learnt on."""
LASTS, LASTS_SHARE = 20, 0.02
"""Steps that were read, and share of all of them, that begin on the same values to the end of the run."""
MOST = 0.5
"""Share of all tensors from which the fault does not belong to one layer."""


def judge(case: Case) -> Finding | None:
    """Weigh weights that do not change in a step, then weights that are reset after each step."""
    # Frozen or left-out weights, rows of embeddings that no batch uses, and 16-bit weights stay for other reasons.
    still, back, seen = [], [], 0
    turned: dict[str, tuple[int, int, int]] = {}
    skipped = {name for _, params in case.run.versions(ParamsFact)
               for name in (*params.zero_lr, *params.not_in_optimizer, *params.frozen)}  # fmt: skip
    for row, site in enumerate(case.layout.sites):
        layer = case.layout.by_path.get(site.module)
        if site.kind != "param" or site.call or (layer is not None and "Embedding" in layer.type):
            continue
        if site.dtype and not site.dtype.endswith(("float32", "float64")):
            continue
        rows = [_row(case, kind, site.module, site.name) for kind in ("param_grad", "update")]
        name = f"{site.module}.{site.name}" if site.module else site.name
        if rows[0] is None or rows[1] is None or name in skipped:
            continue
        course = _course(case, row, rows[0], rows[1])
        seen += course != "unknown"
        if course == "still":
            still.append(name)
        elif course == "back":
            back.append(name)
        elif course == "moves" and (turn := _turn(case, row, rows[1])) is not None:
            turned[name] = turn
    if still and not (case.by_hand and len(still) < seen):  # by hand, some may be meant to rest
        return _still(case, still, seen)
    if back and case.trouble.any:
        return _back(case, back, seen)
    return _back_since(case, turned) if len(turned) > MOST * seen else None


def _row(case: Case, kind: str, module: str, name: str) -> int | None:
    return next((r for r in case.layout.rows(kind, module) if case.layout.sites[r].name == name), None)


def _course(case: Case, param: int, grad: int, update: int) -> str:
    """Classify a weight: ``moves``, ``still``, ``back`` (reset after each step) or ``unknown``."""
    history = case.history
    if update >= history.sites:
        return "unknown"
    whole = history.width == 1
    gradient, moved = history.stat(grad, "rms")[whole], history.stat(update, "rms", "max")[whole]
    weight, count = history.stat(param, "rms")[whole], history.stat(update, "count")[whole]
    lr = history.scalars.get("lr")
    rate = np.full(len(history), np.nan)[whole] if lr is None else lr[whole]
    had = (count > 0) & (gradient > 0) & np.isfinite(gradient) & np.isfinite(weight)
    # Adam divides by the gradient's own size plus eps: where eps is larger, the step is far below the learning rate.
    size = rate * gradient / (gradient + _eps(case)) if case.adaptive else rate * gradient
    had &= size > ROUNDING * np.maximum(weight, 1e-12)
    if had.sum() < STEPS:
        return "unknown"
    # A sample that does not move proves nothing, so one step must have read every element.
    if not (moved[count > 0] > 0).any():
        total = history.stat(update, "total")[whole]
        return "still" if (count[had] >= total[had]).any() else "unknown"
    steps = had & (moved > ROUNDING * weight)
    if steps.sum() < STEPS or steps.sum() < 0.8 * had.sum():
        return "moves"
    stats = [history.stat(param, name)[whole][steps] for name in ("mean", "rms", "min", "max")]
    same = np.all([values[1:] == values[:-1] for values in stats], axis=0)
    return "back" if same.mean() >= ALWAYS else "moves"  # the values to which it is reset may change at times


def _turn(case: Case, param: int, update: int) -> tuple[int, int, int] | None:
    """Return the last step that a weight began with other values than the step read before it, the step read next,
    and how many have begun on the same values since, though each changed them; None if these are few.
    """
    history = case.history
    stats = np.array([history.stat(param, name) for name in ("mean", "rms", "min", "max")])
    moved = history.stat(update, "rms", "max")
    read = (history.width == 1) & np.isfinite(stats).all(axis=0) & np.isfinite(moved)
    steps, stats, moved = history.steps[read], stats[:, read], moved[read]
    changed = np.flatnonzero((stats[:, 1:] != stats[:, :-1]).any(axis=0))
    if len(changed) < STEPS:
        return None
    last = int(changed[-1])
    since = moved[last + 1 :]
    if len(since) < max(LASTS, LASTS_SHARE * len(steps)) or not (since > ROUNDING * stats[1, last + 1 :]).all():
        return None
    return int(steps[last]), int(steps[last + 1]), len(since)


def _back_since(case: Case, turned: dict[str, tuple[int, int, int]]) -> Finding | None:
    """Weigh weights that begin each step on the same values from a step on; most of the model's must do so."""
    since, until, count = max(turned.values())
    names = [name for name, turn in turned.items() if turn[1] == until]
    if len(names) < MOST * len(turned):
        return None
    finite = case.loss.finite
    before = finite.between(0, until - 1).values[-case.loss.window :]
    level, error = float(np.median(before)) if len(before) else np.nan, case.loss.noise / np.sqrt(case.loss.window)
    anew = any(since <= one.until <= until + 1 for _, one in case.run.versions(ChangeFact, what="optimizer"))
    if anew or not case.loss.last > level - NOISES * error:  # what goes on learning is not undone
        return None
    weigh, lines = Weighing(), writing_lines(case, names)
    weigh.speaks(
        f"each of the {count} steps that were read from {a_step(since, until)} on changed {listing(names)}, and began "
        "on the same values, to the last bit; up to then they differed from reading to reading",
        6.0, count, LASTS,
    )  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    else:
        weigh.speaks(
            f"the loss was at {number(level)} then, and ends at {case.loss.ending}", 0.5, case.loss.last, level
        )
    line = weigh_lines(weigh, lines)
    sentence = (
        f"updates of {listing(names)} that are undone: something overwrites the weights after each step from "
        f"{a_step(since, until)} on"
    )
    return _undone(case, weigh, names, sentence, since=since, step=until, lines=lines, at=line)


def _eps(case: Case) -> float:
    known = (float(group.eps) for group in case.groups if group.eps is not None)
    return max(known, default=1e-8)  # torch's default for Adam and RMSprop


def _still(case: Case, names: list[str], seen: int) -> Finding:
    weigh, whole = Weighing(), len(names) > MOST * seen
    rate = f", a learning rate of {number(case.lr)}" if case.lr > 0 else ""
    weigh.speaks(
        f"{listing(names)} did not change by a single bit in any step{' that was read' if case.skips else ''}, with a "
        f"gradient{rate} and a place in the optimizer",
        6.5, 0.0, ROUNDING,
    )  # fmt: skip
    if not whole:
        weigh.speaks(f"the other {plural(seen - len(names), 'tensor')} moved in the same steps", 0.5, seen - len(names))
    first = names[0]
    return weigh.conclude(
        f"updates of {listing(names)} that are lost: the step runs and the weight stays the same to the last bit",
        Remedy(
            "Make the tensor contiguous, and see whether the optimizer's step really reaches it.",
            f"p = model.get_parameter({first!r})\nprint(p.is_contiguous(), p.requires_grad, p.stride())\n"
            "p.data = p.data.contiguous()",
            (once_made(f"p = model.get_parameter({first!r})\np.data = p.data.contiguous()"),),
        ),
        layer=None if whole else owner(first),
        step=0,
        failure=case.trouble.name or "untrained layer",
    )


def _back(case: Case, names: list[str], seen: int) -> Finding:
    weigh, whole = Weighing(), len(names) > MOST * seen
    weigh.speaks(
        f"each step changes {listing(names)}, and each next step begins on the old values again", 6.0, len(names)
    )
    weigh.speaks(case.trouble.phrase, 0.5)
    sentence = f"updates of {listing(names)} that are undone: something overwrites the weight after each step"
    return _undone(case, weigh, names, sentence, layer=None if whole else owner(names[0]))


def _undone(
    case: Case, weigh: Weighing, names: list[str], sentence: str, *, layer: str | None = None, step: int = 0,
    since: int | None = None, lines: Sequence[SourceLine] = (), at: SourceLine | None = None,
) -> Finding:  # fmt: skip
    anywhere = "Look for what writes to it after the step: load_state_dict, copy_, an assignment to .data."
    return weigh.conclude(
        sentence,
        Remedy(
            search(lines, anywhere),
            f"p = model.get_parameter({names[0]!r})\nprint(p.data_ptr(), p._version)  # after each part of the loop",
        ),
        layer=layer,
        step=step,
        since=since,
        failure=case.trouble.name or "untrained layer",
        at=at,
        doing=WRITES,
    )


CAUSE = Cause(
    module=__name__,
    title="Weight updates lost",
    tier=Tier.CERTAIN,
    explains=STALL,
    judge=judge,
    place="step",
    page=__doc__ or "",
)
