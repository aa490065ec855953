"""The layers that no gradient ever reached: events enter, a statement leaves. No judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.wording import listing

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case


def unfed(case: Case) -> list[str]:
    """Return the layers whose gradient was exactly zero at every reading, in the order of the first call. One of which
    some parameters got a gradient, as the bias does behind dead units, is none.
    """
    last = case.history.steps[case.history.read][-1:].max(initial=0)
    found = {
        event.layer
        for event in case.run.events
        if event.kind == "vanishing_gradients"
        and event.details.get("zero")
        and not event.details.get("parameters")
        and event.details.get("always", event.first_step == 0)
        and event.last_step >= last
    }
    ordered = [layer.path for layer in case.ordered if layer.path in found]
    return ordered + sorted(layer for layer in found if layer is not None and layer not in ordered)


def unfed_words(case: Case) -> str:
    """Write which layers no gradient ever reached: a fact, not a cause; "" if there are none."""
    layers = unfed(case)
    return f"the gradient of {listing(layers)} was exactly 0 {case.throughout}" if layers else ""
