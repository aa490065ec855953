"""The memory of each layer's tensors: as measured in a step, else from the sizes of the tensors that were read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.footprint import FootprintFact
from neuraldbg.nouns.measures import DTYPE_BYTES
from neuraldbg.show.format.unit_amounts import amount, per_cent, unit_of
from neuraldbg.show.forms import Bar, Bars, Scale
from neuraldbg.show.views.bars import fewer
from neuraldbg.show.views.columns import columns_of
from neuraldbg.show.views.moments import guilty_of
from neuraldbg.show.views.reading import group
from neuraldbg.show.views.timed import chosen, costliest
from neuraldbg.show.views.untrained import missing_note
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord

SIZES = "Sizes of the tensors that were read, not the memory that the allocator holds"
PARTS = ("parameters", "gradients", "optimizer", "activations")
WORDS = dict(zip(PARTS, ("parameters", "gradients", "optimizer state", "outputs"), strict=True))
KINDS = (("param", "parameters"), ("param_grad", "their gradients"), ("activation", "outputs of a step"))


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return the measured memory of each layer by what it holds; the sizes that were read if none was measured."""
    footprint = run.known(FootprintFact)
    if footprint is None or not footprint.layers or footprint.activations is None:
        return _of_sizes(run, diagnosis, choice)
    return _measured(run, footprint, diagnosis, choice)


def _measured(run: RunRecord, footprint: FootprintFact, diagnosis: Diagnosis, choice: Choice) -> Bars:
    layers = chosen(run, footprint.layers, choice)
    held = np.array([[getattr(layer, part) for part in PARTS] for layer in layers], np.float64).reshape(-1, len(PARTS))
    totals = np.nansum(held, axis=1)
    there = np.flatnonzero(totals > 0)  # a layer without parameters and outputs of its own has nothing to show
    kept = [int(there[i]) for i in costliest(totals[there], choice.rows)]
    size, unit = unit_of(float(totals.max(initial=0.0)), "B")
    names = tuple(layers[i].layer for i in kept)
    few = f"{len(kept):,} of {len(there):,} layers are shown, the largest" if len(kept) < len(there) else ""
    return Bars(
        name="memory",
        title=f"Memory of each layer, step {footprint.step:,}",
        layers=names,
        bars=tuple(
            Bar(WORDS[part], held[kept, i] / size) for i, part in enumerate(PARTS) if not np.isnan(held[kept, i]).all()
        ),
        missing="not measured",
        scale=Scale("memory", unit),
        stacked=True,
        words=tuple(amount(float(totals[i]), "B") for i in kept),
        guilty=guilty_of(diagnosis, set(names))[0],
        step=footprint.step,
        notes=tuple(note for note in (whole_note(footprint), peak_note(footprint), few) if note),
        empty="" if kept else "no layer of these holds memory of its own",
    )


def whole_note(footprint: FootprintFact) -> str:
    """Write what the memory of all layers together is made of; "" if only peaks were given."""
    if footprint.by_hand:
        return ""
    *kept, _ = PARTS
    said = ", ".join(f"{amount(getattr(footprint, part), 'B')} {WORDS[part]}" for part in kept)
    # Not the sum of the bars: an output that the backward pass does not need is released before it begins.
    if footprint.activations is None:
        return f"Together: {said}; outputs not measured"
    return f"Together: {said}; {amount(footprint.activations, 'B')} more are held when the backward pass begins"


def peak_note(footprint: FootprintFact) -> str:
    """Write the peak of the step, when it was, and its share of the device; "" if it was not measured."""
    if footprint.peak is None:
        return ""
    where = f", {footprint.peak_at}" if footprint.peak_at else ""
    share = per_cent(footprint.peak, footprint.device_total)
    of = f", {share} of {amount(footprint.device_total, 'B')}" if share else ""
    which = "Most since the program began" if footprint.whole_run else "Peak of the step"
    which = "Most that was given of a layer" if footprint.by_hand else which
    return f"{which}: {amount(footprint.peak, 'B')}{where}{of} (measured by {footprint.method})"


def _of_sizes(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return the largest bytes of parameters, gradients and outputs (of all calls and micro-batches of a step)."""
    columns = columns_of(run.history, replace(choice, columns=1))
    found: dict[str, dict[str, float]] = {}
    unknown = set()
    for kind, word in KINDS:
        sites = group(run, kind, choice.layer)
        if not sites.rows or not len(columns.steps):
            continue
        read = run.history.stat(sites.rows, "count", "max") > 0
        sizes = np.where(read, run.history.stat(sites.rows, "total", "max"), np.nan)
        totals = columns.reduce(sizes, "max")[0]
        for row, total in zip(sites.rows, totals, strict=True):
            site = run.layout.sites[row]
            if np.isnan(total):
                continue
            size = DTYPE_BYTES.get(site.dtype)
            if size is None:
                unknown.add(site.dtype or "unknown")
                continue
            layer = found.setdefault(site.module, {})
            layer[word] = layer.get(word, 0.0) + float(total) * size
    rank = run.layout.depth
    layers = tuple(sorted(found, key=lambda path: rank.get(path, len(rank))))
    bars = [(word, np.array([found[layer].get(word, np.nan) for layer in layers])) for _, word in KINDS]
    guilty, _ = guilty_of(diagnosis, set(layers))
    shown, kept, left_out = fewer(layers, bars if layers else [], diagnosis, choice, guilty)
    skipped = (
        (f"Tensors of dtype {', '.join(sorted(unknown))} are left out: their size is not known",) if unknown else ()
    )
    untrained = tuple(filter(None, [missing_note(run)])) if shown else ()
    return Bars(
        name="memory",
        title="Memory of each layer's tensors",
        layers=shown,
        bars=kept,
        scale=Scale("size", "B", log=True),
        missing="none was read",
        guilty=guilty,
        notes=(
            f"{SIZES}: neuraldbg run --profile measures that",
            *skipped,
            *left_out,
            *untrained,
        ),
        empty="" if shown else "no tensor was read in these steps",
    )


VIEW = Member("memory", "the memory of each layer by what it holds", compute, takes=("layer",))
