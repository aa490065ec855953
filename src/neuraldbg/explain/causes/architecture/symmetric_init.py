"""Units that are copies of each other: they begin equal, get equal gradients, and stay equal for ever.

What it is
    A layer whose weights all begin at the same value (zeros, or one constant) has units that compute the same thing. If
    the weights that lead out of them are equal too, all of them get the same gradient, so that no step tells them
    apart: a layer of 256 units is worth one.

How it shows
    The loss falls to what a single unit can reach and stops, or does not fall at all: with zeros and a ReLU no gradient
    passes.

How it is told apart
    The rows of each weight matrix are compared with each other at the first steps, and again later. A last layer, or
    the end of a residual branch, that begins at zero is a good habit: its units get different gradients and differ
    after one step. Only rows that are still alike after updates, with gradients that are alike, are this fault. Equal
    weights that do not move at all, because no optimizer holds them or no gradient comes, are another fault.

What to do
    Draw the weights at random (He or Glorot); only biases, and last layers of branches, may begin at zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause, Tier
from neuraldbg.explain.evidence.layer_facts import readings
from neuraldbg.explain.evidence.wording import listing, number, percent, plural
from neuraldbg.explain.finding import Weighing
from neuraldbg.nouns import FactKey, Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Reading
    from neuraldbg.explain.finding import Finding

ALIKE = 1e-3
"""Spread of the rows relative to their size below which they are copies: a random matrix has about 1, and rounding in
32-bit sums leaves about 1e-7."""


def judge(case: Case) -> Finding | None:
    """Weigh the matrices whose rows stayed alike."""
    stuck = {name: seen for name, seen in readings(case, FactKey.SYMMETRY, "layers", "name").items() if _stays(seen)}
    if not stuck:
        return None
    names = sorted(stuck, key=lambda name: (case.depth(str(stuck[name][0].of.get("layer"))), name))
    first = stuck[names[0]]
    layer, last = str(first[0].of.get("layer")), first[-1]
    units, zero = int(last.number("units")), bool(last.of.get("zero"))
    weigh = Weighing()
    weigh.speaks(
        f"after {plural(last.step, 'update')} the {units} units of {called(layer)} still have "
        + ("weights that are all zero" if zero else f"the same weights (spread {number(last.number('spread'))})"),
        4.0, last.number("spread"), ALIKE,
    )  # fmt: skip
    same = "no gradient at all" if last.of.get("gradient_zero") else "the same gradient"
    weigh.speaks(f"each of them gets {same}, so no step tells them apart", 2.5, last.number("gradient"), ALIKE)
    if len(names) > 1:
        weigh.speaks(f"it is so in {listing(names)}", 0.5, len(names), 1)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.7)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 1.0, case.loss.relative)
    return weigh.conclude(
        f"units that are copies of each other: the {units} units of {called(layer)} began equal and stay equal",
        _remedy([str(stuck[name][0].of.get("layer")) for name in names], names),
        layer=layer,
        step=0,
        failure=case.trouble.name or "units without difference",
    )


def _stays(seen: list[Reading]) -> bool:
    """Return True if rows were alike from the first look on, were still after an update, and nothing
    will change that.
    """
    last = seen[-1]
    if last.step < 1 or not seen[0].number("spread") < ALIKE or not last.number("spread") < ALIKE:
        return False
    if any(not r.number("spread") < ALIKE for r in seen):
        return False
    trained = [r for r in seen if r.of.get("gradient") is not None]
    alike = [r.of.get("gradient_zero") or r.number("gradient") < ALIKE for r in trained]
    if not last.of.get("zero") and all(r.of.get("gradient_zero") for r in trained):
        return False  # equal numbers that get no gradient, as thresholds: something blocks it, and not their symmetry
    return len(trained) >= 2 and all(alike)


def _remedy(layers: list[str], names: list[str]) -> Remedy:
    where = dict(zip(layers, names, strict=True))
    lines = [
        f"torch.nn.init.kaiming_uniform_(model.get_parameter({name!r}), a=5**0.5)" for name in list(where.values())[:4]
    ]
    return Remedy(
        f"Draw the weights of {listing(layers)} at random; zeros are for biases and for the last layer of a branch.",
        "\n".join(lines),
    )


CAUSE = Cause(
    id="symmetric_init",
    category="architecture",
    title="units that begin equal and stay equal",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
