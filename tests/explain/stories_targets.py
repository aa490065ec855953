"""Stories of causes that judge what a loss is asked for, each as the arguments of a Story."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tests.explain.run_builder import Build, falling, flat

from neuraldbg.nouns import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = {"chain": [], "direct": True, "sign": 1}


def slot(build: Build, **changes: Any) -> Build:
    """Add the TARGETS fact of a classifier, as of the end of the run."""
    counts = {str(i): 192 for i in range(10)}
    base = {
        "slot": 0, "stream": 0, "kind": "nll", "alone": True, "single": True, "maximised": False, "classes": 10,
        "batches": 60, "samples": 1920, "distinct": 10, "histogram": counts, "ignore": -100, "ignored": 0.0, "empty": 0,
        "first_empty": None, "entropy": 2.3, "batch_entropy": 2.15, "same_next": 0.1, "same_by_chance": 0.1,
        "switches": [], "period": 0,
    }  # fmt: skip
    return build.fact("targets", build.steps - 1, **{**base, **changes})


def numbers(build: Build, kind: str, values: dict[str, int], **changes: Any) -> Build:
    """Add the TARGETS fact of a loss that compares numbers."""
    found = np.array([float(v) for v in values])
    return build.fact(
        "targets", build.steps - 1, slot=0, stream=0, kind=kind, alone=True, single=True, batches=60, samples=1920,
        min=float(found.min()), max=float(found.max()), mean=float(found.mean()), std=float(found.std()), values=values,
        integral=True, outside_unit=float(((found < 0) | (found > 1)).mean()), **changes,
    )  # fmt: skip


def fit(z: float, best_z: float = 0.0, **more: Any) -> dict[str, Any]:
    """How well inputs tell targets."""
    return {"samples": 500, "features": 64, "score": 0.005 * z, "null": 0.0, "null_sd": 0.005, "z": z,
            "best": "reversed", "best_score": 0.005 * best_z, "best_z": best_z, "again": 0, "agree": 0,
            "spread": 0.5, **more}  # fmt: skip


def double_sigmoid(*, scaled: bool = False) -> Build:
    given = {"min": -5.0, "max": 6.0} if scaled else {"min": 0.1, "max": 0.9}
    b = Build().loss(falling(60, 0.72, 0.2 if scaled else 0.55, 0.01))
    chain = ["mul", "sigmoid"] if scaled else ["sigmoid"]
    return b.loss_term(kind="bce_with_logits", chain=chain, sign=1, input=given, classes=1, target={"mean": 0.5})


def missing_log_softmax(*, sound: bool = False) -> Build:
    mass = {"low": 1.0, "high": 1.0, "top": -0.1, "bottom": -5.0, "plain_low": -30.0, "plain_high": -20.0}
    if not sound:
        mass |= {"low": 8.0, "high": 14.0, "top": 0.8}
    b = Build().loss(falling(60) if sound else -np.linspace(0, 500, 60))
    return b.loss_term(kind="nll", mass=mass, **PLAIN)


def output_activation_mismatch(share: float = 0.5) -> Build:
    b = Build().loss(falling(60, 1.1, 0.8)).scalar("lr", 0.01)
    target = {"min": -2.0, "max": 2.5, "mean": 0.0, "std": 1.0}
    return b.loss_term(kind="mse", chain=["sigmoid"], outside=share, target=target, sign=1, classes=1)


def loss_task_mismatch(kind: str = "mse") -> Build:
    b = Build().loss(falling(60, 25, 8))
    shapes = [[32, 10], [32, 1]]
    b.loss_term(kind=kind, operand_shapes=shapes, input_shape=[32, 10], target={"std": 0.3, "mean": 0.1}, **PLAIN)
    return numbers(b, kind, {str(i): 190 for i in range(10)})


def one_hot_rows() -> Build:
    b = Build().loss(falling(60, 0.69, 0.1))
    b.loss_term(kind="bce_with_logits", operand_shapes=[[32, 10], [32, 10]], target={"mean": 0.1}, **PLAIN)
    return numbers(b, "bce_with_logits", {"0": 1700, "1": 220})


def target_out_of_range() -> Build:
    b = Build(steps=20)
    b.outcome = Outcome("raised", "IndexError: Target 10 is out of bounds.", "train.py:12")
    return b


def crash_of_something_else() -> Build:
    b = Build()
    b.outcome = Outcome("raised", "IndexError: list index out of range", "train.py:12")
    return b


def softened_labels() -> Build:
    b = Build().loss_term(kind="bce_with_logits", target={"mean": 0.5}, **PLAIN)
    return numbers(b, "bce_with_logits", {"-0.1": 900, "1.1": 900})


def labels_degenerate() -> Build:
    b = Build().loss(falling(60, 2.3, 1e-3, 1e-4)).loss_term(**PLAIN)
    return slot(b, distinct=1, histogram={"0": 1920}, entropy=0.0, batch_entropy=0.0)


def positives_in_column_0() -> Build:
    """A contrastive loss: its scores are products of embeddings."""
    b = Build().loss_term(chain=["div", "cat", "bmm"], direct=False, sign=1)
    return slot(b, distinct=1, histogram={"0": 1920}, entropy=0.0, batch_entropy=0.0)


def loss_sign_flip() -> Build:
    return Build().loss(-np.geomspace(2.3, 900, 60)).loss_term(chain=[], direct=True, sign=-1)


def trained_input() -> Build:
    b = Build().loss(-np.linspace(2.3, 9.0, 60)).loss_term(chain=[], direct=True, sign=-1)
    return b.optimizer_fact(owned=0, foreign=1)


def loss_mask_error(padded: float = 0.7) -> Build:
    tokens = {"match": {"0": 0.1, "1": 0.99}, "compared": 900, "padded": padded, "padded_rows": 0.9, "pad": 0}
    return slot(Build().loss_term(**PLAIN), tokens=tokens)


def target_misaligned() -> Build:
    return slot(Build().loss(flat(60)).loss_term(**PLAIN).event("loss_plateau", 0), fit=fit(0.3, 150.0))


def aligned() -> Build:
    return slot(Build().loss_term(**PLAIN), fit=fit(160.0, 1.5))


def label_noise() -> Build:
    return slot(Build().loss(flat(60)).loss_term(**PLAIN).event("loss_plateau", 0), fit=fit(0.3, 1.0))


def hard_but_learnt() -> Build:
    return slot(Build().loss_term(**PLAIN), fit=fit(0.3, 1.0))


def class_imbalance(*, found: bool = False) -> Build:
    b = Build(steps=120).loss(falling(120, 0.7, 0.02 if found else 0.2, 0.01)).loss_term(classes=2, **PLAIN)
    b.loss(np.where(np.arange(120) < 40, b.scalars["loss"], b.scalars["loss"][-1]))
    rows = {"0": [1900, 1890, 1880], "1": [100, 110, 90]} if found else {"0": [1900, 2000, 1900], "1": [100, 0, 0]}
    return slot(b, classes=2, distinct=2, predicted={"from": 60, "readings": 8, "classes": rows}, fit=fit(40.0))


def unshuffled_data(*, harmful: bool = True) -> Build:
    blocks = np.tile(np.geomspace(3.0, 0.2, 10), 6)
    b = Build().loss(blocks if harmful else falling(60)).loss_term(**PLAIN)
    switches = list(range(10, 60, 10))
    return slot(
        b,
        batch_entropy=0.2 if harmful else 0.5,
        same_next=0.9,
        same_by_chance=0.2,
        switches=switches,
        distinct=4,
        period=30,
    )


Told = tuple["Callable[[], Build]", "Callable[[], Build]", str | None, int | None, str, str, float]


def term_without_gradient(graph: int = 0) -> Build:
    term = {"place": ["t.py", 9, "loss.backward()"], "read": 20, "changes": 19}
    terms = [
        {"name": "dice", "graph": graph, "low": 0.2, "high": 0.8, **term},
        {"name": "bce", "graph": 20, "low": 0.1, "high": 0.7, **term},
    ]
    return Build().fact("terms", 59, terms=terms)


TOLD: dict[str, Told] = {
    "term_without_gradient": (
        term_without_gradient, lambda: term_without_gradient(20), None, 0, "suspect", "healthy", 0.7,
    ),
    "double_sigmoid": (double_sigmoid, lambda: double_sigmoid(scaled=True), "fc3", 0, "suspect", "healthy", 0.7),
    "missing_log_softmax": (
        missing_log_softmax, lambda: missing_log_softmax(sound=True), "fc3", 0, "suspect", "healthy", 0.7,
    ),
    "output_activation_mismatch": (
        output_activation_mismatch, lambda: output_activation_mismatch(0.01), "fc3", 0, "suspect", "healthy", 0.7,
    ),
    "loss_task_mismatch": (loss_task_mismatch, one_hot_rows, "fc3", 0, "suspect", "healthy", 0.7),
    "target_out_of_range": (target_out_of_range, softened_labels, None, 20, "failing", "healthy", 0.7),
    "labels_degenerate": (labels_degenerate, positives_in_column_0, "fc3", 0, "suspect", "healthy", 0.7),
    "loss_sign_flip": (loss_sign_flip, trained_input, "fc3", 0, "suspect", "healthy", 0.7),
    "loss_mask_error": (loss_mask_error, lambda: loss_mask_error(0.1), "fc3", 0, "suspect", "healthy", 0.7),
    "target_misaligned": (target_misaligned, aligned, "fc3", 0, "failing", "healthy", 0.7),
    "label_noise": (label_noise, hard_but_learnt, "fc3", 0, "failing", "healthy", 0.5),
    "class_imbalance": (
        class_imbalance, lambda: class_imbalance(found=True), "fc3", 0, "suspect", "healthy", 0.6,
    ),
    "unshuffled_data": (
        unshuffled_data, lambda: unshuffled_data(harmful=False), None, 0, "suspect", "healthy", 0.7,
    ),
}  # fmt: skip
