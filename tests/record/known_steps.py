"""Steps with known numbers (synthetic: what is tested is that they come back), and an equality of records."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from neuraldbg.nouns import (
    BINS,
    STATS,
    Edge,
    Event,
    Fact,
    History,
    Layer,
    Layout,
    Outcome,
    RunInfo,
    Site,
    Step,
    StepHistograms,
    column,
)
from neuraldbg.record.row_block import rows_of, tables_of

INFO = RunInfo(
    script="train.py",
    argv=("--lr", "0.1"),
    started=1_700_000_000.5,
    models=("Net",),
    optimizers=("SGD",),
    versions={"python": "3.11", "neuraldbg": "0.1.0"},
    coverage={"layers": 2, "seen": 2, "never_fired": [], "notes": ["one"], "errors": 0},
    outcome=Outcome("raised", "ValueError: NaN", "train.py:12"),
    seed=3,
)


def layout(sites=4):
    layers = tuple(
        Layer(f"fc{i}", "Linear", "Net", True, ("weight", "bias"), {"in_features": 8.0, "max_norm": math.inf})
        for i in range(sites)
    )
    edges = tuple(Edge(f"fc{i}", f"fc{i + 1}", ("relu", "add")) for i in range(sites - 1))
    return Layout(
        layers=layers,
        sites=tuple(Site("param_grad", f"fc{i}", i % 2, "weight", "float32") for i in range(sites)),
        edges=edges,
        called=frozenset(layer.path for layer in layers),
    )


def histograms(index, sites=4):
    """Bell-shaped counts, of each site elsewhere; the last site has none."""
    draw = np.random.default_rng(index)
    bins = np.arange(BINS)
    places = draw.integers(0, BINS, (sites, 1))
    counts = draw.poisson(800 * np.exp(-(((bins - places) / 6) ** 2)))
    return StepHistograms.of(index, range(sites - 1), counts[:-1])


def step(index, *, sites=4, stream=0, loss=None, nonfinite=0, seen=True, binned=False, **scalars):
    table = np.zeros((sites, len(STATS)))
    for k, name in enumerate(("mean", "std", "rms", "min", "max")):
        table[:, column(name)] = math.sin(index * 0.1 + k) + np.arange(sites)
    table[:, column("total")] = table[:, column("count")] = 64.0
    table[:, column("zeros")] = index % 3
    table[:, column("nonfinite")] = nonfinite
    if not seen:
        table[:] = 0.0
        table[:, [column(name) for name in ("mean", "std", "rms", "min", "max")]] = math.nan
    value = 1.0 / (index + 1) if loss is None else loss
    return Step(
        index=index,
        stream=stream,
        time=index * 0.01,
        table=table,
        scalars={"loss": value, "lr": 0.1, "loss_nonfinite": float(not math.isfinite(value)), **scalars},
        facts=(Fact(index, "modes", {"model": "Net", "training": True, "worst": math.nan}),) if index == 0 else (),
        histograms=histograms(index, sites) if binned else None,
    )


def event(first, last=None, kind="gradient_spike", layer="fc1", **details):
    return Event(
        kind,
        "gradient_health",
        first,
        first if last is None else last,
        layer,
        "param_grad/fc1.weight",
        0.9,
        {"value": math.inf, "limit": 3.0, **details},
    )


def assert_same(one, other, path="record"):
    """Equal to the last bit, with NaN equal to NaN."""
    if dataclasses.is_dataclass(one):
        assert isinstance(one, type(other)) or isinstance(other, type(one)), path
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name), f"{path}.{field.name}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, path
        np.testing.assert_array_equal(one, other, err_msg=path)
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key, value in one.items():
            assert_same(value, other[key], f"{path}[{key!r}]")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{path}[{i}]")
    elif isinstance(one, float) and math.isnan(one):
        assert math.isnan(other), path
    else:
        assert one == other, path


def covered(history: History):
    """The steps that the rows with scalars stand for, of a run with one stream."""
    own = ~np.isnan(history.scalars["loss_nonfinite"]) if len(history) else slice(None)
    return [
        s
        for first, width in zip(history.steps[own].tolist(), history.width[own].tolist(), strict=True)
        for s in range(first, first + width)
    ]


def turns(steps):
    """The place of each step in its stream."""
    seen, found = {}, []
    for s in steps:
        found.append(seen.setdefault(s.stream, 0))
        seen[s.stream] += 1
    return np.array(found, np.int64)


def tables(steps):
    return tables_of(steps, np.arange(len(steps)), turns(steps))


def rows(steps):
    return rows_of(steps, np.arange(len(steps)), turns(steps))
