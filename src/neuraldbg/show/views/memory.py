"""The memory of each layer's tensors, from their sizes and dtypes in the run file, not from an allocator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Bars, Scale
from neuraldbg.show.views.bars import fewer
from neuraldbg.show.views.columns import columns_of
from neuraldbg.show.views.moments import guilty_of
from neuraldbg.show.views.reading import group
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord

BYTES = {"float64": 8, "int64": 8, "complex64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
BYTES |= {"int8": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex128": 16}
KINDS = (("param", "parameters"), ("param_grad", "their gradients"), ("activation", "outputs of a step"))


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return the largest bytes of parameters, gradients and outputs (of all calls and micro-batches of a step)."""
    columns = columns_of(run.history, replace(choice, columns=1))
    found: dict[str, dict[str, float]] = {}
    unknown = set()
    for kind, word in KINDS:
        sites = group(run, kind, choice.layer)
        if not sites.rows or not len(columns.steps):
            continue
        totals = columns.reduce(run.history.stat(sites.rows, "total", "max"), "max")[0]
        for row, total in zip(sites.rows, totals, strict=True):
            site = run.layout.sites[row]
            size = BYTES.get(site.dtype)
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
    return Bars(
        name="memory",
        title="Memory of each layer's tensors",
        layers=shown,
        bars=kept,
        scale=Scale("size", "B", log=True),
        guilty=guilty,
        notes=("Sizes of the tensors that were seen; what the allocator holds is not recorded", *skipped, *left_out),
        empty="" if shown else "no tensor was read in these steps",
    )


VIEW = Member("memory", "the size of each layer's tensors", compute, takes=("layer",))
