"""The first NaN or infinity of a run: its step, and the sites that became non-finite in it, in order of computation.

Within one step the order is: input, activations along the data flow, operations of the loss, the loss, gradients
against the data flow, parameters. A site that is non-finite while loss, gradients and weights stay finite (an
attention mask of minus infinities) is no origin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from neuraldbg.nouns import History, Layout, RunRecord, Site

PHASE = {"input": 0, "activation": 1, "op": 2, "loss": 3, "output_grad": 4, "param_grad": 5, "update": 6, "param": 7}
"""Position of each kind of site in the order of computation of a step."""
_CORE = ("loss", "output_grad", "param_grad", "param")


@dataclass(frozen=True)
class Origin:
    """The first non-finite step and the sites that became non-finite in it, earliest in data flow first."""

    step: int
    sites: tuple[Site, ...]
    row: int
    """Row of the history."""
    read: bool = True
    """True if sites were read in that step; of a light step only the loss and the gradient norm are known."""

    @property
    def first(self) -> Site | None:
        """The earliest of the sites; None if no site was seen to become non-finite."""
        return self.sites[0] if self.sites else None

    def has(self, *kinds: str) -> bool:
        """Return True if a site of one of these kinds became non-finite in that step."""
        return any(site.kind in kinds for site in self.sites)


def flow_key(site: Site, layout: Layout) -> tuple[int, int, int]:
    """Return the sort key of a site within one step: phase, then depth (reversed for gradients), then call."""
    phase = PHASE.get(site.kind, 9)
    depth = layout.depth.get(site.module, 0)
    return (phase, -depth, -site.call) if phase in (4, 5) else (phase, depth, site.call)


def find_origin(run: RunRecord, *, scaled: bool) -> Origin | None:
    """Return the origin of the first non-finite value; None if the run stayed finite.

    With a gradient scaler (``scaled``) non-finite gradients are part of its search for a scale and do not count, but an
    update that was computed from them does.
    """
    history = run.history
    if not len(history):
        return None
    # Only sites on which the training depends decide the step; a masked activation may be infinite in any run.
    bad = history.stat(list(range(history.sites)), "nonfinite") > 0
    kinds = [site.kind for site in run.layout.sites[: bad.shape[1]]]
    wanted = ("loss", "param", "update") if scaled else _CORE
    core = np.asarray([kind in wanted for kind in kinds], dtype=bool)
    hit = bad[:, core].any(axis=1) if core.any() else np.zeros(len(history), bool)
    # The scalars show non-finite values of light steps, whose sites were not read.
    lost = history.scalars.get("loss_nonfinite")
    if lost is not None:
        hit |= np.nan_to_num(lost) > 0
    loss = history.scalars.get("loss")
    if loss is not None:
        hit |= np.isinf(loss)
    norm = history.scalars.get("grad_norm")
    if norm is not None and not scaled:
        hit |= np.isinf(norm)
    for event in run.events_of("nonfinite_gradient"):
        if event.details.get("unread") and not scaled:  # a norm that is NaN looks as if it had not been measured
            hit |= (history.steps <= event.first_step) & (event.first_step < history.steps + history.width)
    if not hit.any():
        return None
    # Sites that were non-finite in every earlier step are not part of the change.
    row = int(np.flatnonzero(hit)[0])
    earlier = bad[:row][history.read[:row]]
    before = earlier.all(axis=0) & bool(len(earlier))
    fresh = np.flatnonzero(bad[row] & ~before)
    sites = sorted((run.layout.sites[i] for i in fresh), key=lambda site: flow_key(site, run.layout))
    return Origin(int(history.steps[row]), tuple(sites), row, _was_read(history, row))


def _was_read(history: History, row: int) -> bool:
    """Return True if sites were read in the step of a row, or if none ever were."""
    step, read = history.steps[row], history.read
    there = (history.steps[read] <= step) & (step < (history.steps + history.width)[read])
    return bool(there.any()) or not read.any()
