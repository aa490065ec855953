"""A semantic transition of the training: what changed, where, from when to when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.html import DIM, div, listed, number_text, percent, safe, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

TRANSITIONS = ("gradient_health", "activation_regime", "optimizer_stability", "loss", "data", "program")
"""The families that an event belongs to."""


@dataclass(frozen=True)
class Event:
    """Something went from one regime to another. Being bad from the first step on is an event too."""

    kind: str
    """What happened, such as ``vanishing_gradients``: the name of the detector's finding."""
    transition: str
    """One of TRANSITIONS."""
    first_step: int
    last_step: int
    """The last step at which it was seen. Grows while the event lasts; the later version replaces the earlier."""
    layer: str | None = None
    """Layer path, None for the run as a whole."""
    site: str = ""
    """Label of the site (``fc1.weight``) and its kind before a slash: ``param_grad/fc1.weight``."""
    confidence: float = 1.0
    """How sure the detector is that the transition is real, 0 to 1; not how likely any cause is."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Measured numbers and the thresholds they crossed."""

    @shown
    def _repr_html_(self) -> str:
        """Return what happened, where and when, and the numbers that were measured, as HTML for a notebook."""
        last = f" to {self.last_step:,}" if self.last_step != self.first_step else ""
        where = f" in <b>{safe(self.layer)}</b>" if self.layer else ""
        details = (f"{safe(key)}: {safe(number_text(value))}" for key, value in self.details.items())
        return div(
            f"<b>{safe(self.kind.replace('_', ' '))}</b>{where}, step {self.first_step:,}{last} "
            f'<span style="{DIM}">({safe(self.transition)}, {percent(self.confidence)})</span>{listed(details)}'
        )

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Return what identifies an event over its updates."""
        return (self.kind, self.layer or "", self.site, self.first_step)
