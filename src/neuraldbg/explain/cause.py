"""The contract of a cause: one file whose docstring is its page, and one function that weighs the evidence.

A member module defines ``CAUSE = Cause(...)``. Registration is one line, the dotted name, in
``explain/causes/__init__.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding, Tier


NONFINITE = frozenset({"nonfinite_activation", "nonfinite_gradient", "nonfinite_parameter", "nonfinite_loss"})
"""Events of a run that overflowed."""
BLOW_UP = NONFINITE | {
    "exploding_gradients",
    "gradient_spike",
    "loss_spike",
    "loss_divergence",
    "update_ratio_high",
    "activation_scale",
    "large_weights",
}
"""Events of a run that blows up, for any cause."""
STALL = frozenset({"loss_plateau", "vanishing_gradients", "update_ratio_low", "unchanged_parameters"})
"""Events of a run that does not learn."""
UNITS = frozenset({"dead_units", "saturated_units"})
"""Units that stopped working."""


@dataclass(frozen=True)
class Cause:
    """One cause of the taxonomy: its tier, its judge and its help page."""

    module: str
    """Dotted name of its module: ``...causes.<category>.<id>``."""
    title: str
    """Name of the fault in a few words, as a heading: "Softmax applied twice". The id stands behind it."""
    tier: Tier
    explains: frozenset[str]
    """Kinds of events that are its consequences, and are explained away by it."""
    judge: Callable[[Case], Finding | None]
    """Function that weighs the evidence of one run; it returns None if there is no sign of the cause."""
    page: str
    """Module docstring with the four headings of a help page: What it is, Symptoms, Evidence, What to
    do."""
    place: str | None = None
    """Kind of source line to show, a kind of the PLACES fact; None if it is that of the cause's category."""
    entails: frozenset[str] = frozenset()
    """Ids of causes whose own evidence is a consequence of this one: a graph that is cut leaves parameters unused.
    Where both are credible, those are ranked behind this one, whatever their tier."""

    effect_of: frozenset[str] = frozenset()
    """Ids of faults of the program which can lead to this one: a critic that learns from half of its losses lets its
    generator collapse. Where one of them is credible and was at work no later, it is ranked before this one."""

    apart: bool = False
    """True for a fault that does no harm to what the model learns, such as growing memory: it is never the reason for
    the way in which a loss went, and makes a run suspect at most."""

    @property
    def id(self) -> str:
        """The name of its module."""
        return self.module.rpartition(".")[2]

    @property
    def category(self) -> str:
        """The name of its folder."""
        return self.module.split(".")[-2]
