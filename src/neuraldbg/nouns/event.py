"""An event: a transition of the training from one regime to another, with its layer, its steps and its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.html import DIM, div, listed, number_text, percent, safe, shown
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from collections.abc import Mapping

TRANSITIONS = ("gradient_health", "activation_regime", "optimizer_stability", "loss", "data", "program")
"""Families of events."""

EVENT_KINDS = {
    "activation_scale": "activation_regime",
    "dead_units": "activation_regime",
    "exploding_gradients": "gradient_health",
    "gradient_spike": "gradient_health",
    "large_weights": "optimizer_stability",
    "loss_divergence": "loss",
    "loss_plateau": "loss",
    "loss_spike": "loss",
    "nonfinite_activation": "activation_regime",
    "nonfinite_gradient": "gradient_health",
    "nonfinite_input": "data",
    "nonfinite_loss": "loss",
    "nonfinite_parameter": "optimizer_stability",
    "saturated_units": "activation_regime",
    "unchanged_parameters": "optimizer_stability",
    "update_ratio_high": "optimizer_stability",
    "update_ratio_low": "optimizer_stability",
    "vanishing_gradients": "gradient_health",
}
"""Family of each kind of event that the detectors find."""
SURE = 0.5
"""Confidence from which an event is a symptom: below it, it is shown in the list of events and leads nothing."""


@dataclass(frozen=True)
class Event:
    """A transition from one regime to another. Being bad from the first step on is an event, too.

    >>> [event.kind for event in run.events_of("nonfinite_loss")]
    ['nonfinite_loss']
    """

    kind: str
    """Name of the detector's finding, such as ``vanishing_gradients``."""
    transition: str
    """Family of the kind: ``gradient_health``, ``activation_regime``, ``optimizer_stability``, ``loss``, ``data`` or
    ``program``."""
    first_step: int
    """First step at which the event was observed."""
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
    """Measured numbers, the step at which they were measured (``at_step``), and the thresholds that they crossed."""

    @property
    def step(self) -> int:
        """First step at which the event was observed: another name of ``first_step``.

        >>> all(event.step == event.first_step for event in run.events)
        True
        """
        return self.first_step

    @property
    def sure(self) -> bool:
        """Return True if the event shows a fault: its detector is sure, and a converged run would not have it."""
        return self.confidence >= SURE and not self.details.get("after_learning")

    @property
    def place(self) -> str:
        """The place as a sentence names it: the layer, or the parameter that the event is about; "" for the run."""
        if self.layer is None:
            return ""
        listed = self.details.get("parameters")
        names = listed if isinstance(listed, (list, tuple)) else ()
        kind, _, label = self.site.partition("/")
        if not names and kind in ("param", "update") and label.startswith(f"{self.layer}."):
            names = (label,)
        if not names:
            return called(self.layer)
        return str(names[0]) if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    def __str__(self) -> str:
        where = f" in {self.place}" if self.layer else ""
        when = f"at step {self.first_step}"
        if self.last_step != self.first_step:
            when = f"from step {self.first_step} to {self.last_step}"
        return f"{self.kind.replace('_', ' ')}{where} {when}, {round(100 * self.confidence)}% sure"

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
