"""The most memory that was in use at one time while each layer ran, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.footprint import FootprintFact
from neuraldbg.show.format.unit_amounts import amount, unit_of
from neuraldbg.show.forms import Bar, Bars, Scale
from neuraldbg.show.views.memory import peak_note
from neuraldbg.show.views.moments import guilty_of
from neuraldbg.show.views.timed import chosen, costliest
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord

TITLE = "Peak memory while each layer ran"
LABEL = "memory in use at one time"
UNMEASURED = (
    "the peak of no layer was measured: record it with neuraldbg run --profile, or with NeuralDbg(model, profile=True)"
)


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return the peaks of each layer in the order of their first call, and that of the step as a limit."""
    footprint = run.known(FootprintFact)
    layers = chosen(run, footprint.layers if footprint is not None else (), choice)
    peaks = np.array([[_known(one.peak), _known(one.backward_peak)] for one in layers], np.float64).reshape(-1, 2)
    there = np.flatnonzero(np.isfinite(peaks).any(axis=1))
    if footprint is None or not len(there):
        notes = () if footprint is None else tuple(filter(None, (peak_note(footprint),)))
        return Bars(name="memory_peak", title=TITLE, layers=(), bars=(), scale=Scale(LABEL, "MiB"), empty=UNMEASURED,
                    notes=notes)  # fmt: skip
    largest = np.fmax.reduce(peaks[there], axis=1)
    kept = there[costliest(largest, choice.rows)].tolist()
    size, unit = unit_of(float(max(footprint.peak or 0, largest.max())), "B")
    names = tuple(layers[i].layer for i in kept)
    bars = [Bar(word, peaks[kept, i] / size) for i, word in enumerate(("forward", "backward"))]
    few = f"{len(kept):,} of {len(there):,} layers are shown, those with the highest" if len(kept) < len(there) else ""
    return Bars(
        name="memory_peak",
        title=TITLE,
        layers=names,
        bars=tuple(bar for bar in bars if np.isfinite(bar.values).any()),
        scale=Scale(LABEL, unit),
        limits=() if footprint.peak is None else (("peak of the step", footprint.peak / size),),
        missing="not measured",
        guilty=guilty_of(diagnosis, set(names))[0],
        step=footprint.step,
        notes=tuple(note for note in (peak_note(footprint), _base(footprint), few) if note),
    )


def _known(size: int | None) -> float:
    return np.nan if size is None else float(size)


def _base(footprint: FootprintFact) -> str:
    """Write what is in use whichever layer runs."""
    lasting = footprint.parameters + footprint.optimizer
    said = f"Of it {amount(lasting, 'B')} are parameters and optimizer state, in use all the time" if lasting else ""
    if footprint.beside:
        said += f"{', and' if said else 'Of it'} {amount(footprint.beside, 'B')} lie on the device beside the model"
    return said


VIEW = Member("memory_peak", "the peak of memory while each layer ran", compute, takes=("layer",))
