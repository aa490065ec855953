"""Simpler reasons for a run to blow up, each read from the program or its data.

A case enters, statements that are true of the run leave. They are evidence against causes that symptoms alone show (a
learning rate, a gradient that grows), and are no verdict by themselves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.optimizer_steps import changed_outside
from neuraldbg.explain.evidence.wording import number

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case

FAR = 10.0
"""Scale of inputs or targets (the larger of mean and rms or deviation) that can break a run by itself; 1 is usual."""
STALE = 0.9
"""Share of parameters with an old gradient from which gradients count as not cleared."""


def simpler_reasons(case: Case) -> list[tuple[str, float | str]]:
    """Return statements with their measured values, the most certain first."""
    # Read from the program: gradients that add up, weights that the program itself changed.
    found: list[tuple[str, float | str]] = []
    stale = case.scalar("stale_grad")
    later = stale.values[stale.steps > 0]
    if len(later) >= 3 and float((later >= STALE).mean()) > 0.5:
        found.append(("gradients are not cleared between steps", float(np.median(later))))
    outside = changed_outside(case)
    if outside is not None:
        said = f"the program itself changed weights by {number(outside[1])} of their size before step {outside[0]}"
        found.append((said, outside[1]))
    # A value that was non-finite in the batch, or after one operation, needs no step that was too large.
    origin = case.origin
    if origin is not None and origin.first is not None and origin.step > 0:
        if origin.first.kind == "input":
            found.append(("the first non-finite value is in the batch itself", origin.step))
        elif origin.first.kind == "op":
            found.append((f"the first non-finite value is made by an operation ({origin.first.name})", origin.step))
    # Sums and unusual scales make large gradients at a usual learning rate.
    for term in case.terms:
        if term.reduction == "sum" and term.input_shape and math.prod(term.input_shape) >= FAR:
            found.append(("the loss is a sum over the batch, so gradients grow with it", "sum"))
            break
    wide = [s for s in case.inputs if not s.integer and max(abs(s.mean), s.rms) > FAR]
    if wide:
        found.append((f"the inputs are of unusual scale (rms {number(wide[0].rms)})", wide[0].rms))
    for term in case.terms:
        scale = max(abs(term.target.mean or 0.0), term.target.std or 0.0) if term.target is not None else 0.0
        if term.kind in ("mse", "squared_error", "l1", "smooth_l1", "huber") and FAR < scale < float("inf"):
            found.append((f"the targets are of unusual scale ({number(scale)})", scale))
            break
    return found
