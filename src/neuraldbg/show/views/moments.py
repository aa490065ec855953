"""The marks of a view: the moment of failure, the guilty layers, the events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.layout import called
from neuraldbg.show.forms import Mark

if TYPE_CHECKING:
    from collections.abc import Collection

    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.views.view import Choice


def marks_of(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> tuple[Mark, ...]:
    """Return the moment of failure, and the step that was chosen, as marks."""
    step, label = failure_of(run, diagnosis)
    found = [Mark(step, label, "failure")] if step is not None else []
    if choice.step is not None:
        found.append(Mark(choice.step, f"step {choice.step:,}", "chosen"))
    return tuple(found)


def failure_of(run: RunRecord, diagnosis: Diagnosis) -> tuple[int | None, str]:
    """Return the step that a person would call the failure, with a label: the end of the loss, else the first event."""
    if diagnosis.verdict not in ("failing", "suspect"):
        return None, ""
    loss = run.scalar("loss")
    broken = np.flatnonzero(~np.isfinite(loss.values))
    if len(broken):
        step = int(loss.steps[broken[0]])
        return step, f"loss not finite from step {step:,}"
    if run.info.outcome.kind in ("raised", "halted") and run.steps:
        word = {"raised": "error", "halted": "halted"}[run.info.outcome.kind]
        return run.steps - 1, f"{word} after step {run.steps - 1:,}"
    if diagnosis.events:
        event = min(diagnosis.events, key=lambda e: (e.transition != "loss", e.first_step))
        where = f" in {called(event.layer)}" if event.layer else ""
        return event.first_step, f"{event.kind.replace('_', ' ')}{where}, step {event.first_step:,}"
    if diagnosis.hypotheses and diagnosis.hypotheses[0].step is not None:
        step = diagnosis.hypotheses[0].step
        return step, f"{diagnosis.hypotheses[0].cause.replace('_', ' ')}, step {step:,}"
    return None, ""


def guilty_of(diagnosis: Diagnosis, drawn: Collection[str]) -> tuple[tuple[str, ...], str]:
    """Return the layers to highlight and the word for them: those that the cause names, else those hit first."""
    if diagnosis.verdict not in ("failing", "suspect"):
        return (), ""
    for hypothesis in diagnosis.hypotheses[:1]:
        if hypothesis.layer:  # where the layer that the cause names is not drawn, no other stands for it
            found = _drawn(hypothesis.layer, drawn)
            return found, "guilty" if found else ""
    events = sorted(diagnosis.events, key=lambda event: event.first_step)
    for layer in [node.layer for node in diagnosis.chain.nodes] + [event.layer for event in events]:
        if found := _drawn(layer, drawn):
            return found, "hit first"
    return (), ""


def _drawn(layer: str | None, drawn: Collection[str]) -> tuple[str, ...]:
    """Return the curves that belong to a name: its own, that of a parameter's layer, or those of all layers in it."""
    if not layer:
        return ()
    own = [one for one in drawn if one == layer or (one and layer.startswith(f"{one}."))]
    if own:
        return (max(own, key=len),)  # not the blocks around it
    return tuple(one for one in sorted(drawn) if one.startswith(f"{layer}."))
