"""The marks of a view: the moment of failure, the guilty layers, the events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Mark

if TYPE_CHECKING:
    from collections.abc import Collection

    from neuraldbg.nouns import Diagnosis, Event, RunRecord
    from neuraldbg.show.views.view import Choice

SURE = 0.5
"""Least confidence of a cause that is marked as the failure."""
GAPS = 0.5
"""Share of finite losses after the first non-finite one below which the run counts as broken from there on."""


def marks_of(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> tuple[Mark, ...]:
    """Return the moment of failure, and the step that was chosen, as marks."""
    step, label = failure_of(run, diagnosis)
    found = [Mark(step, label, "failure")] if step is not None else []
    if choice.step is not None:
        found.append(Mark(choice.step, f"step {choice.step:,}", "chosen"))
    return tuple(found)


def failure_of(run: RunRecord, diagnosis: Diagnosis) -> tuple[int | None, str]:
    """Return the step that a person would call the failure, with a label; None if none of it is more sure than not.

    It is the crash, else the first sure event of the loss, the first event that follows from the first cause, or the
    step of that cause. In a run that goes on, an event of the loss that no cause explains is not its failure.
    """
    if diagnosis.verdict not in ("failing", "suspect"):
        return None, ""
    step, label = crash_of(run, diagnosis)
    if step is not None:
        return step, label
    loss = run.scalar("loss")
    broken = np.flatnonzero(~np.isfinite(loss.values))
    if len(broken):
        step = int(loss.steps[broken[0]])
        return step, f"loss not finite, step {step:,}"
    cause = next((h for h in diagnosis.hypotheses[:1] if h.confidence >= SURE), None)
    own = diagnosis.effects if cause is not None or not diagnosis.hypotheses else ()
    sure = [event for event in diagnosis.events if event.sure] if diagnosis.verdict == "failing" else own
    losses = sorted((e for e in sure if e.transition == "loss"), key=lambda event: event.first_step)
    for event in (*losses, *own)[:1]:
        return event.first_step, _event(event)
    if cause is not None and cause.step is not None:
        return cause.step, f"{cause.cause.replace('_', ' ')}, step {cause.step:,}"
    return None, ""


def crash_of(run: RunRecord, diagnosis: Diagnosis) -> tuple[int | None, str]:
    """Return the step from which the run could not go on, with a label: the loss is not finite to the end, or the
    program was stopped by an error or by NeuralDBG. None for a run that trained badly to its end.
    """
    if diagnosis.verdict not in ("failing", "suspect"):
        return None, ""
    loss = run.scalar("loss")
    finite = np.flatnonzero(np.isfinite(loss.values))
    after = int(finite[-1]) + 1 if len(finite) else 0
    if after < len(loss):
        first = int(loss.steps[np.flatnonzero(~np.isfinite(loss.values))[0]])
        step = int(loss.steps[after])
        # A first NaN shortly before, or anywhere if few losses between were finite, is where it began.
        step = first if np.isfinite(loss.values[loss.steps >= first]).mean() < GAPS else step
        return step, f"loss not finite from step {step:,}"
    if run.info.outcome.kind in ("raised", "halted") and run.steps:
        word = {"raised": "error", "halted": "halted"}[run.info.outcome.kind]
        return run.steps - 1, f"{word} after step {run.steps - 1:,}"
    return None, ""


def _event(event: Event) -> str:
    where = f" in {event.place}" if event.layer else ""
    return f"{event.kind.replace('_', ' ')}{where}, step {event.first_step:,}"


def guilty_of(diagnosis: Diagnosis, drawn: Collection[str]) -> tuple[tuple[str, ...], str]:
    """Return the layers to highlight and the word for them: those that the cause names, else those it hit first.

    A cause in the data that names no layer has none: it came to all of them.
    """
    if diagnosis.verdict not in ("failing", "suspect"):
        return (), ""
    for hypothesis in diagnosis.hypotheses[:1]:
        if hypothesis.layer:  # where the layer that the cause names is not drawn, no other stands for it
            found = _drawn(hypothesis.layer, drawn)
            return found, "guilty" if found else ""
        if hypothesis.category == "data":  # gradients come back from the loss: the last layer's are no lead to the data
            return (), ""
    for layer in [node.layer for node in diagnosis.chain.nodes] + [event.layer for event in diagnosis.effects]:
        if found := _drawn(layer, drawn):
            return found, "hit first"
    return (), ""


def _drawn(layer: str | None, drawn: Collection[str]) -> tuple[str, ...]:
    """Return the curves that belong to a name: its own, else those of the layers in it, else that of a parameter's
    layer, or of the closest module around it.
    """
    if not layer:
        return ()
    if layer in drawn:
        return (layer,)
    inside = tuple(one for one in sorted(drawn) if one.startswith(f"{layer}."))
    around = [one for one in drawn if one and layer.startswith(f"{one}.")]
    return inside or ((max(around, key=len),) if around else ())
