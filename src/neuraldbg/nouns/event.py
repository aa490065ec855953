"""An event: a transition of the training from one regime to another, with its layer, its steps and its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.html import DIM, div, listed, number_text, percent, safe, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

TRANSITIONS = ("gradient_health", "activation_regime", "optimizer_stability", "loss", "data", "program")
"""Families of events."""


@dataclass(frozen=True)
class Event:
    """A transition from one regime to another. Being bad from the first step on is an event, too."""

    kind: str
    """Name of the detector's finding, such as ``vanishing_gradients``."""
    transition: str
    """One of TRANSITIONS."""
    first_step: int
    last_step: int
    """Last step at which the event was observed. It grows while the event lasts: the later version replaces the
    earlier."""
    layer: str | None = None
    """Path of the layer. None for the run as a whole."""
    site: str = ""
    """Kind and label of the site: ``param_grad/fc1.weight``; "" if there is none."""
    confidence: float = 1.0
    """Probability that the transition is real, 0 to 1, in the detector's view; not the probability of any cause."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Measured numbers, and the thresholds that they crossed."""

    @shown
    def _repr_html_(self) -> str:
        """Render kind, layer, steps and measured numbers as HTML for a notebook."""
        last = f" to {self.last_step:,}" if self.last_step != self.first_step else ""
        where = f" in <b>{safe(self.layer)}</b>" if self.layer else ""
        details = (f"{safe(key)}: {safe(number_text(value))}" for key, value in self.details.items())
        return div(
            f"<b>{safe(self.kind.replace('_', ' '))}</b>{where}, step {self.first_step:,}{last} "
            f'<span style="{DIM}">({safe(self.transition)}, {percent(self.confidence)})</span>{listed(details)}'
        )

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Kind, layer, site and first step, which stay the same over the versions of an event."""
        return (self.kind, self.layer or "", self.site, self.first_step)
