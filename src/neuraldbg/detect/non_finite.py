"""NaN or infinity in an input, an activation, a gradient, a parameter or the loss.

One event per kind: `nonfinite_input`, `nonfinite_activation`, `nonfinite_loss`, `nonfinite_gradient` and
`nonfinite_parameter`. Its layer is the origin: the first site, at the first such step, in the order of computation: the
forward pass from the input to the loss, the backward pass from the loss to the input. The others are listed as
affected. `origin` in the details is true if the kind is the earliest of its step.

In a light step only the loss and the norm of all gradients are known: their events have no layer (`unread` in the
details), since by the next step that is read NaN has spread everywhere.

No failures are: a loss scaler's trial (infinite gradients whose step it skipped, or a fused optimizer left out), an
additive mask of zeros and -inf among the inputs, and values that reach neither loss nor gradients (`contained`, low
confidence).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episode
from neuraldbg.detect.layer_rows import COUNT, FAR, MAX, MIN, NONFINITE, RMS, Synced, flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layout, Step

KIND_OF = {
    "input": "nonfinite_input",
    "activation": "nonfinite_activation",
    "op": "nonfinite_activation",
    "output_grad": "nonfinite_gradient",
    "param_grad": "nonfinite_gradient",
    "param": "nonfinite_parameter",
    "update": "nonfinite_parameter",
}
"""Kind of event by kind of site."""
ORDER = ("nonfinite_input", "nonfinite_activation", "nonfinite_loss", "nonfinite_gradient", "nonfinite_parameter")
"""Kinds of events in the order in which a step computes its numbers."""
LISTED = 32
"""Affected sites in the details at most."""


class NonFiniteThresholds(Thresholds):
    """The thresholds of non-finite values that may be intended."""

    max_skips: int = Field(
        16,
        ge=1,
        description="Steps that a loss scaler may skip in a row. Source: torch.amp.GradScaler starts at 2**16 and "
        "halves, so after 16 the scale is 1 and no longer the reason.",
    )
    contained_confidence: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Confidence of a non-finite input or activation while loss and gradients are finite. Source: "
        "our own choice; intended -inf, such as masked logits, looks like that.",
    )


class NonFinite(Synced):
    """The detector of NaN and infinity in inputs, activations, gradients, parameters and losses."""

    name: ClassVar[str] = "non_finite"
    needs: ClassVar[frozenset[str]] = frozenset(set(KIND_OF))
    light: ClassVar[bool] = True

    def __init__(self, thresholds: NonFiniteThresholds | None = None) -> None:
        super().__init__()
        self.thresholds = thresholds or NonFiniteThresholds()
        families = {"nonfinite_input": "data", "nonfinite_activation": "activation_regime", "nonfinite_loss": "loss"}
        self._episodes = {kind: Episode(kind, families.get(kind, "gradient_health")) for kind in ORDER}
        self._episodes["nonfinite_parameter"].transition = "optimizer_stability"
        self._details: dict[str, dict[str, Any]] = {}
        self._order: dict[str, npt.NDArray[np.intp]] = {}
        self._weights: frozenset[int] = frozenset()
        self._table: npt.NDArray[np.float64] | None = None

    def build(self, layout: Layout, rows: int) -> None:
        """Sort the rows of each kind in the order of their computation."""
        position = flow(layout)
        groups: dict[str, list[tuple[tuple[int, ...], int]]] = {kind: [] for kind in ORDER}
        for row, site in enumerate(layout.sites[:rows]):
            kind = KIND_OF.get(site.kind)
            if kind is None:
                continue
            at, up = position.get(site.module, (FAR, 0))
            if site.kind in ("input", "op"):
                at = -1 if site.kind == "input" else FAR
            late = site.kind in ("param_grad", "update")
            key = (-at, up, late, -site.call) if kind == "nonfinite_gradient" else (at, up, late, site.call)
            groups[kind].append(((*key, row), row))
        self._weights = frozenset(layout.rows("param"))
        self._order = {kind: np.array([row for _, row in sorted(group)], np.intp) for kind, group in groups.items()}

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        if not len(step.table):
            return self._observe_light(step)
        self.sync(step, layout)
        column = step.table[: self._rows, NONFINITE]
        loss, loss_bad = step.loss, _loss_bad(step)
        left_out = step.scalars.get("overflowed", 0.0)
        skips = max(step.scalars.get("skipped", 0.0), left_out)
        any_bad = bool(column.any())
        # The details show the extremes of the step before the failure.
        previous, self._table = self._table, step.table
        if not any_bad and not loss_bad and skips <= self.thresholds.max_skips and not self._details:
            return []
        # Masks and a scaler's trials are intended: their sites are left out.
        bad = {kind: rows[column[rows] > 0] for kind, rows in self._order.items()}
        bad["nonfinite_input"] = self._without_masks(step, bad["nonfinite_input"])
        if 0 < skips <= self.thresholds.max_skips:
            rows = bad["nonfinite_gradient"]
            bad["nonfinite_gradient"] = rows[:0] if left_out else self._without_trials(layout, rows)
        found = {kind: loss_bad if kind == "nonfinite_loss" else bool(len(bad[kind])) for kind in ORDER}
        if skips > self.thresholds.max_skips:
            found["nonfinite_gradient"] = True
        lost = not left_out and not math.isfinite(step.scalars.get("grad_norm", 0.0))
        if self._episodes["nonfinite_gradient"].active and lost:
            found["nonfinite_gradient"] = True  # an event of a light step that lasts
        contained = loss is not None and not found["nonfinite_loss"] and not found["nonfinite_gradient"]
        events: list[Event] = []
        for kind in ORDER:
            events += self._judge(kind, step, layout, bad[kind], found, contained=contained, previous=previous)
        return events

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which all numbers are finite."""
        self.sync(block.steps[first], block.layout)
        if self._details:
            return 0
        most, last = self.thresholds.max_skips, first
        finite = steps_before(block.tables[first:, : self._rows, NONFINITE] != 0)
        for step in block.steps[first : first + finite]:
            if _loss_bad(step) or not step.scalars.get("skipped", 0.0) <= most:
                break
            self._table = step.table
            last += 1
        return last - first

    def _observe_light(self, step: Step) -> list[Event]:
        """Judge the loss and the norm of all gradients of a light step; the layer is not known."""
        scalars = step.scalars
        loss, norm = scalars.get("loss", 0.0), scalars.get("grad_norm", 0.0)
        # The difference of a non-finite number and itself is NaN.
        left_out = scalars.get("overflowed", 0.0)
        usual = loss - loss == 0.0 == norm - norm and left_out <= self.thresholds.max_skips
        if usual and not self._details and not scalars.get("loss_nonfinite"):
            return []
        found = {}
        if "loss" in scalars or scalars.get("loss_nonfinite"):
            found["nonfinite_loss"] = scalars.get("loss_nonfinite", 0.0) > 0 or not math.isfinite(loss)
        if left_out > self.thresholds.max_skips:
            found["nonfinite_gradient"] = True
        elif "grad_norm" in scalars and not left_out:
            found["nonfinite_gradient"] = not math.isfinite(norm)
        loss_bad = found.get("nonfinite_loss", False)
        events: list[Event] = []
        for kind, bad in found.items():
            episode = self._episodes[kind]
            if bad and not episode.active:
                episode.layer, episode.site = None, ""
                self._details[kind] = {
                    "at_step": step.index,
                    "direction": "backward" if kind == "nonfinite_gradient" else "forward",
                    "origin": kind == "nonfinite_loss" or not loss_bad,
                    "affected": [],
                    "affected_count": 0,
                    "loss": scalars.get("loss"),
                    "loss_finite": not loss_bad,
                    "unread": True,
                }
            events += episode.observe(step.index, bad, not bad, functools.partial(self._unread, kind))
            if not episode.active:
                self._details.pop(kind, None)
        return events

    def _unread(self, kind: str) -> tuple[float, dict[str, Any]]:
        return 1.0, {**self._details[kind], "contained": False, "affected_last": 0}

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return [event for episode in self._episodes.values() for event in episode.ongoing()]

    def _judge(
        self,
        kind: str,
        step: Step,
        layout: Layout,
        rows: npt.NDArray[np.intp],
        found: Mapping[str, bool],
        *,
        contained: bool,
        previous: npt.NDArray[np.float64] | None,
    ) -> list[Event]:
        episode, bad = self._episodes[kind], found[kind]
        # The origin is fixed in the first step: by the next one NaN has spread everywhere.
        if bad and not episode.active:
            origin = layout.sites[int(rows[0])] if len(rows) else None
            episode.layer = origin.module if origin is not None and origin.kind not in ("input", "op") else None
            if origin is not None and origin.kind == "op" and origin.module in layout.by_path:
                episode.layer = origin.module
            episode.site = f"{origin.kind}/{origin.label}" if origin is not None else ""
            self._details[kind] = self._describe(kind, step, layout, rows, found, previous)
        may_be_contained = kind in ("nonfinite_input", "nonfinite_activation")

        def describe() -> tuple[float, dict[str, Any]]:
            held = may_be_contained and contained
            details = {**self._details[kind], "contained": held, "affected_last": len(rows)}
            return (self.thresholds.contained_confidence if held else 1.0), details

        events = episode.observe(step.index, bad, not bad, describe)
        if not episode.active:
            self._details.pop(kind, None)
        return events

    def _describe(
        self,
        kind: str,
        step: Step,
        layout: Layout,
        rows: npt.NDArray[np.intp],
        found: Mapping[str, bool],
        previous: npt.NDArray[np.float64] | None,
    ) -> dict[str, Any]:
        details: dict[str, Any] = {
            "at_step": step.index,  # these numbers stay those of the first step, also in later versions of the event
            "direction": "backward" if kind == "nonfinite_gradient" else "forward",
            "origin": self._origin(step, found) == kind,
            "affected": [f"{layout.sites[r].kind}/{layout.sites[r].label}" for r in rows[:LISTED].tolist()],
            "affected_count": len(rows),
            "loss": step.loss,
            "loss_finite": not found["nonfinite_loss"],
            "inputs_finite": not found["nonfinite_input"],
            "forward_finite": not found["nonfinite_activation"] and not found["nonfinite_input"],
            "parameters_finite": not found["nonfinite_parameter"],
        }
        for name in ("loss_scale", "skipped"):
            if name in step.scalars:
                details[name] = step.scalars[name]
        # The site before the origin, in the order of computation, is the last one with finite values.
        if len(rows):
            row = int(rows[0])
            order = self._order[kind]
            seen = order[step.table[order, COUNT] > 0]
            at = int(np.flatnonzero(seen == row)[0])
            before = layout.sites[int(seen[at - 1])] if at else None
            details |= {
                "nonfinite": step.table[row, NONFINITE],
                "count": step.table[row, COUNT],
                "dtype": layout.sites[row].dtype,
                "absmax": _absmax(step.table, row),
                "absmax_previous": _absmax(previous, row),
                "last_finite": f"{before.kind}/{before.label}" if before is not None else None,
            }
        return details

    def _origin(self, step: Step, found: Mapping[str, bool]) -> str:
        """Return the kind that came first in its step. Weights are read before the optimizer's step: non-finite ones
        were the reason of the forward pass's values.
        """
        weights = [row for row in self._order["nonfinite_parameter"].tolist() if row in self._weights]
        if not found["nonfinite_input"] and (step.table[weights, NONFINITE] > 0).any():
            return "nonfinite_parameter"
        return next(kind for kind in ORDER if found[kind])

    @staticmethod
    def _without_masks(step: Step, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Leave out additive attention masks, which consist of zeros and -inf."""
        table = step.table
        mask = (table[rows, RMS] == 0.0) & (table[rows, NONFINITE] < table[rows, COUNT])
        return np.asarray(rows[~mask])

    @staticmethod
    def _without_trials(layout: Layout, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Leave out output gradients of backward passes whose step the scaler skipped, if all parameters' gradients are
        finite.
        """
        if any(layout.sites[row].kind == "param_grad" for row in rows.tolist()):
            return rows
        return rows[:0]


def _loss_bad(step: Step) -> bool:
    loss = step.loss
    return step.scalars.get("loss_nonfinite", 0.0) > 0 or (loss is not None and not math.isfinite(loss))


def _absmax(table: npt.NDArray[np.float64] | None, row: int) -> float | None:
    if table is None or row >= len(table) or not table[row, COUNT] > 0:
        return None
    return float(max(abs(table[row, MIN]), abs(table[row, MAX])))
