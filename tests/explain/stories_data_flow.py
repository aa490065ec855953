"""Stories of causes that judge what flows where: (fires, silent, layer, step, verdict, silent verdict, least)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.explain.run_builder import Build

from neuraldbg.nouns import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable


def tried(name: str, step: int = 2, build: Build | None = None, **found: Any) -> Build:
    """A run in which an experiment found something."""
    value = {"id": f"Net:{name}", "name": name, "model": "Net", "judged": True, **found}
    return (build or Build()).fact("experiment", step, **value)


def fed(**changes: Any) -> Build:
    """A run with the BATCHES fact of a trainer that validates twice."""
    level = {"mean": 0.3, "std": 0.35, "low": 0.0, "high": 1.0, "passes": 60, "wander": 0.01}
    overlap = {"passes": 20, "mixed": 0, "pure": 0, "shared": 0, "samples": 640, "mixed_shared": 0, "mixed_samples": 0,
               "datasets": [], "seen_before": 1.0, "twice": 0.0, "covered": 1.0, "again": 10,
               "recall": 0.1}  # fmt: skip
    runs = {"lengths": {"1": 59}, "first": -1, "reused": 0, "workers": None}
    base = {"model": "Net", "passes": 60, "evals": 20, "bursts": 2, "usual": 32, "odd": [], "sizes": 1,
            "floating": True, "shape": [32, 1, 8, 8], "grid": "unit", "grid_eval": "unit", "columns": None,
            "train": level, "eval": level, "skewed": 0.0, "overlap": overlap, "runs": runs, "alike": None}  # fmt: skip
    for key in ("overlap", "runs", "eval", "train"):
        changes[key] = {**base[key], **changes.get(key, {})}
    build = Build()
    return build.fact("batches", build.steps - 1, **{**base, **changes})


def pictures(beside: float = 0.35, apart: float = 0.85) -> Build:
    """A run that is fed images of three channels."""
    return fed(shape=[32, 3, 32, 32], likeness=[beside, apart])


def leak(layer: str | None = "fc2", leaks: bool = True) -> Build:
    return tried("causality", leaks=leaks, length=32, at=16, share=0.9 if leaks else 0.0, layer=layer, type="Block")


def denied_later() -> Build:
    """What the first experiment found, the second did not."""
    return tried("causality", 32, leak(), leaks=False, length=32, at=16, share=0.0, layer=None, type="")


def mixed(**changes: Any) -> Build:
    found = {"rows": 64, "mixed": True, "pattern": "later", "strength": 0.5, "dims": 3, "steady": True, "axis_ops": [],
             "why_batch": "the loss has one target for each of the 64 rows",
             "layers": [{"layer": "fc2", "type": "GRU", "shape": [64, 8, 16]}]}  # fmt: skip
    return tried("batch_mixing", **{**found, **changes})


def refused() -> Build:
    build = fed(odd=[[60, 1]])
    build.outcome = Outcome(
        "raised", "ValueError: Expected more than 1 value per channel when training, got input size [1, 64]", "t.py:9"
    )
    return build


def another_error() -> Build:
    build = fed(odd=[[60, 1]])
    build.outcome = Outcome("raised", "KeyError: 'label'", "t.py:9")
    return build


def written(likeness: float = 0.97) -> Build:
    array = {"dataset": "Rows", "name": "x", "item": [64], "passes": 6, "changed": 5, "first": 20, "share": 1.0,
             "likeness": likeness, "means": [0.0, 0.01, 0.02, 0.02, 0.03, 0.03],
             "stds": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]}  # fmt: skip
    return fed(shape=[32, 64]).fact("dataset_writes", 59, arrays=[array])


LEAKY = {"mixed": 8, "mixed_shared": 70, "mixed_samples": 256, "shared": 70}
SKEWED = {"mean": 80.0, "std": 90.0, "high": 255.0}
PAIRS = {"lengths": {"2": 29}, "first": 1, "workers": {"workers": 2, "iterable": "Stream", "dataset": "Stream"}}

Told = tuple["Callable[[], Build]", "Callable[[], Build]", str | None, int | None, str, str, float]
TOLD: dict[str, Told] = {
    "channels_interleaved": (
        pictures, lambda: pictures(0.76, 0.77), None, 0, "suspect", "healthy", 0.7,
    ),
    "dataset_overwritten": (
        written, lambda: written(likeness=0.02), None, 20, "suspect", "healthy", 0.7,
    ),  # new data in the same array
    "mask_error": (leak, denied_later, "fc2", 0, "suspect", "healthy", 0.9),
    "batch_axis_mixup": (
        mixed, lambda: mixed(layers=[], pattern="all"), "fc2", 0, "suspect", "healthy", 0.9,
    ),  # a statistic over the batch, as it may be meant
    "input_ignored": (
        lambda: tried("input_ignored", ignored=True, layer="fc1", leaves=[]),
        lambda: tried("input_ignored", ignored=False, layer=None, leaves=[]),
        "fc1", 0, "suspect", "healthy", 0.9,
    ),
    "degenerate_batch": (refused, another_error, None, 60, "failing", "failing", 0.9),
    "double_normalisation": (
        lambda: fed(grid="twice", train={"std": 0.0014, "high": 0.0039}), fed, "fc1", 0, "suspect", "healthy", 0.7,
    ),
    "train_val_leak": (
        lambda: fed(overlap=LEAKY), lambda: fed(overlap={**LEAKY, "recall": 0.9}), None, 0, "suspect", "healthy", 0.9,
    ),
    "split_skew": (
        lambda: fed(eval=SKEWED, skewed=1.0, grid_eval="bytes"),
        lambda: fed(eval={"std": 0.28}, skewed=1.0),  # augmentation
        None, 0, "suspect", "healthy", 0.9,
    ),
    "duplicate_worker_rng": (
        lambda: fed(runs=PAIRS), lambda: fed(runs={**PAIRS, "reused": 29}), None, 1, "suspect", "healthy", 0.9,
    ),
}  # fmt: skip
