"""Dropout removes nearly everything that the layers compute.

What it is
    ``Dropout(p)`` sets a share p of the values to zero. In TensorFlow 1 and some papers the number meant what is kept,
    so that a "0.9" carried over keeps a tenth here; with p = 1 nothing is left.

Symptoms
    The training loss stays high and noisy and is far above the loss in evaluation mode, where dropout is off; more
    training does not help.

Evidence
    The probability is read from the layers, and from the masks in the graph of the loss, so that functional dropout is
    seen too. Up to 0.6 is ordinary. More is named where the training suffers: the loss hardly falls, or stays near the
    level of guessing. With p = 1 no measurement is needed.

What to do
    Use 0.1 to 0.5; pass 1 - keep_prob.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.explain.evidence.late_changes import began, raised, weigh_change
from neuraldbg.explain.evidence.layer_facts import dropout_rates
from neuraldbg.explain.evidence.wording import listing, literal, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

HIGH = 0.7
"""Probability from which dropout is high: Srivastava et al. 2014 find 0.4 to 0.8 of hidden units kept to be best, and
torch's default drops 0.5."""
ALL = 0.999
TIMES = 3.0
"""Ratio of the training loss to the evaluation loss, from which dropout causes most of the training loss."""
POOR = 0.5
"""Share of the loss of a constant guess above which little was learnt."""


def judge(case: Case) -> Finding | None:
    """Weigh the highest active dropout."""
    high = {path: p for path, p in dropout_rates(case).items() if p >= HIGH}
    change = raised(case, "dropout")
    high |= {change.name: change.after} if change is not None and change.after >= HIGH else {}
    if not high:
        return None
    worst = max(high, key=lambda path: (high[path], -case.depth(path)))
    p = high[worst]
    # Dropout of everything is proof; below that the evidence grows with the probability.
    weigh = Weighing()
    if p >= ALL:
        weigh.speaks(f"{_named(case, worst)} drops every value, so nothing behind it sees the input", 6.5, p, HIGH)
    else:
        weigh.speaks(f"{_named(case, worst)} drops {percent(p)} of the values", 1.2 + 6.0 * (p - HIGH), p, HIGH)
    # Layers of dropout after each other multiply.
    kept = math.prod(1 - p for p in high.values())
    if len(high) > 1 and p < ALL:
        weigh.speaks(f"{len(high)} such layers leave {percent(kept)} of the paths", 0.7, kept, 1 - HIGH)
    if change is not None:
        weigh_change(case, weigh, change)
    else:
        _weigh_course(case, weigh)
    since = ""
    if change is not None:
        since = f", which rose from {number(change.before)} to {number(change.after)} {change.when}"
    paths = list(high)[:4]
    modules = all(_is_module(case, path) for path in high)
    try_p = min(0.5, max(0.1, round(1 - p, 2)))
    return weigh.conclude(
        f"dropout that removes {percent(p)} of the values at {listing(high)}{since}",
        Remedy(
            f"Drop less: p is the share that is removed, so p = {literal(try_p)} if {literal(p)} was meant to be kept.",
            code := "\n".join(_line(case, path, try_p) for path in paths),
            (once_made(code),) if modules and len(paths) == len(high) else (),
        ),
        layer=worst if worst in case.layout.by_path else None,
        step=began(case, change) if change is not None else 0,
        since=change.since if change is not None else None,
        failure=case.trouble.name or "training without most of the values",
    )


def _weigh_course(case: Case, weigh: Weighing) -> None:
    guess, last = guessing_loss(case), case.loss.last
    if case.trouble.kind in ("stuck", "slow"):
        weigh.speaks(case.trouble.phrase, 2.5)
        return
    if not case.learned:
        weigh.speaks("the loss shows no clear progress", 1.0)
        return
    poor = guess > 0 and last > POOR * guess
    if poor:
        said = f"after training the loss is {case.loss.ending}, where guessing gives {number(guess)}"
        weigh.speaks(said, 2.0, last, POOR * guess)
    evaluated = case.scalar("eval_loss").finite().values
    apart = len(evaluated) > 0 and TIMES * float(evaluated[-1]) < last
    if apart and not poor:
        weigh.speaks(
            f"in evaluation, where nothing is dropped, the loss is {number(float(evaluated[-1]))}, and in training "
            f"{case.loss.ending}", 2.0, float(evaluated[-1]), last / TIMES,
        )  # fmt: skip
    weigh.against(
        f"the model learns: the loss fell by {percent(case.loss.relative)}", 1.0 if poor or apart else 2.5,
        case.loss.relative,
    )  # fmt: skip


def _named(case: Case, path: str) -> str:
    layer = case.layout.by_path.get(path)
    return called(path) if layer is not None and "Dropout" in layer.type else f"dropout before {called(path)}"


def _is_module(case: Case, path: str) -> bool:
    layer = case.layout.by_path.get(path)
    return layer is not None and "Dropout" in layer.type


def _line(case: Case, path: str, p: float) -> str:
    if _is_module(case, path):
        return f"model.get_submodule({path!r}).p = {literal(p)}"
    return f"x = torch.nn.functional.dropout(x, p={literal(p)}, training=self.training)  # before {path}"


CAUSE = Cause(
    module=__name__,
    title="Dropout rate too high",
    tier=Tier.SPECIFIC,
    explains=STALL | {"loss_divergence"},
    judge=judge,
    page=__doc__ or "",
)
