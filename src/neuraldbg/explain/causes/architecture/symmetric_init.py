"""Units that are copies of each other: they begin equal, get equal gradients, and stay equal for ever.

What it is
    A layer whose weights all begin at the same value (zeros, or one constant) has units that compute the same thing. If
    the weights that lead out of them are equal too, all of them get the same gradient, so that no step makes them
    differ: a layer of 256 units is worth one.

Symptoms
    The loss falls to what a single unit can reach and stops, or does not fall at all: with zeros and a ReLU no gradient
    passes.

Evidence
    The rows of each weight matrix are compared with each other at the first steps, and again later. A last layer, or
    the end of a residual branch, that begins at zero is a good habit: its units get different gradients and differ
    after one step. Only rows that are still alike after updates, with gradients that are alike, are this fault. Equal
    weights that do not move at all, because no optimizer holds them or no gradient comes, are another fault.

What to do
    Draw the weights at random (He or Glorot); only biases, and last layers of branches, may begin at zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.layer_facts import as_number, readings
from neuraldbg.explain.evidence.wording import listing, number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.symmetry import SymmetryFact
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Reading
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.symmetry import UnitRows

ALIKE = 1e-3
"""Spread of the rows relative to their size, below which they are copies: a random matrix has about 1, and rounding in
32-bit sums leaves about 1e-7."""


def judge(case: Case) -> Finding | None:
    """Weigh the matrices whose rows began and stayed equal."""
    found = readings(case, SymmetryFact, lambda fact: fact.layers, lambda entry: entry.name)
    stuck = {name: seen for name, seen in found.items() if _stays(seen)}
    if not stuck:
        return None
    names = sorted(stuck, key=lambda name: (case.depth(stuck[name][0].of.layer), name))
    first = stuck[names[0]]
    layer, last = first[0].of.layer, first[-1].of
    # Equal gradients prove that training cannot separate the units.
    updates, units = plural(first[-1].step, "update"), last.units
    weigh = Weighing()
    weigh.speaks(
        f"after {updates} the {units} units of {called(layer)} still have "
        + ("weights that are all zero" if last.zero else f"the same weights (spread {number(last.spread)})"),
        4.0, last.spread, ALIKE,
    )  # fmt: skip
    same = "no gradient at all" if last.gradient_zero else "the same gradient"
    weigh.speaks(f"each of them gets {same}, so no step makes them differ", 2.5, as_number(last.gradient), ALIKE)
    if len(names) > 1:
        weigh.speaks(f"it is so in {listing(names)}", 0.5, len(names), 1)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.7)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 1.0, case.loss.relative)
    return weigh.conclude(
        f"units that are copies of each other: the {units} units of {called(layer)} began equal and stay equal",
        _remedy([stuck[name][0].of.layer for name in names], names),
        layer=layer,
        step=0,
        failure=case.trouble.name or "units without difference",
    )


def _stays(seen: list[Reading[UnitRows]]) -> bool:
    """Return True if the rows were equal at every reading, also after an update, and their gradients are equal."""
    last = seen[-1]
    if last.step < 1 or not seen[0].of.spread < ALIKE or not last.of.spread < ALIKE:
        return False
    if any(not r.of.spread < ALIKE for r in seen):
        return False
    trained = [r.of for r in seen if r.of.gradient is not None]
    alike = [entry.gradient_zero or as_number(entry.gradient) < ALIKE for entry in trained]
    if not last.of.zero and all(entry.gradient_zero for entry in trained):
        return False  # equal numbers without a gradient, such as thresholds: something else blocks it
    return len(trained) >= 2 and all(alike)


def _remedy(layers: list[str], names: list[str]) -> Remedy:
    where = dict(zip(layers, names, strict=True))
    lines = [f"torch.nn.init.kaiming_uniform_(model.get_parameter({name!r}), a=5**0.5)" for name in where.values()]
    code = "\n".join(lines)
    return Remedy(
        f"Draw the weights of {listing(layers)} at random; zeros are for biases and for the last layer of a branch.",
        code,
        (once_made(code),),
    )


CAUSE = Cause(
    module=__name__,
    title="Units initialised alike",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
