"""Metrics beside a falling loss: what must be said, and what must not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.explain.run_builder import Build, falling, flat

from neuraldbg.explain import diagnose
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.metric_trends import meaning_of, metric_trends
from neuraldbg.nouns import METRIC, RunRecord, nonfinite_of

STEPS = 100


def logged(values: dict[str, list[float]], loss: np.ndarray | None = None) -> RunRecord:
    """Return the record of a healthy run of which metrics were logged, at evenly spaced steps."""
    build = Build(steps=STEPS)
    build.loss(falling(STEPS) if loss is None else loss)
    run = build.build()
    scalars = dict(run.history.scalars)
    for name, series in values.items():
        column = np.full(STEPS, np.nan)
        at = np.linspace(0, STEPS - 1, len(series)).round().astype(int)
        column[at], bad = series, np.zeros(STEPS)
        bad[at] = ~np.isfinite(series)
        scalars[f"{METRIC}{name}"], scalars[nonfinite_of(f"{METRIC}{name}")] = column, bad
    return dataclasses.replace(run, history=dataclasses.replace(run.history, scalars=scalars))


def said(**values: list[float]) -> list[str]:
    return [trend.phrase for trend in metric_trends(Case(logged(values)))]


@pytest.mark.parametrize(
    ("name", "rises", "held_out"),
    [
        ("accuracy", True, False), ("val/acc", True, True), ("valAccuracy", True, True), ("test_F1_macro", True, True),
        ("mAP50", True, False), ("metrics/mAP50-95(B)", True, False), ("episode_return", True, False),
        ("rewards", True, False), ("R2", True, False), ("rougeL", True, False), ("psnr", True, False),
        ("eval_loss", False, True), ("dev.perplexity", False, True), ("wer", False, False), ("test_error", False, True),
        ("learning_rate", None, False), ("grad_norm", None, False), ("epoch", None, False), ("neg_mse", None, False),
        ("acc_loss", None, False), ("eval_runtime", None, False), ("samples_per_second", None, False),
    ],
)  # fmt: skip
def test_which_way_a_metric_should_go_is_known_by_the_words_of_its_name(
    name: str, rises: bool | None, held_out: bool
) -> None:
    meaning = meaning_of(name)
    assert (meaning.rises if meaning is not None else None) is rises
    assert meaning is None or meaning.held_out is held_out


def test_a_metric_that_stays_is_said_with_what_a_guess_would_give() -> None:
    assert said(accuracy=[0.1] * 6) == ["'accuracy' was 0.1 in all 6 values, that of a guess among 10 classes"]
    assert said(acc=[10.0, 10.4, 9.8, 10.0, 10.2, 9.9]) == [
        "'acc' stayed at 10 (6 values), that of a guess among 10 classes"
    ]
    assert said(f1=[0.31, 0.3, 0.32, 0.31, 0.31, 0.3, 0.31, 0.32, 0.31]) == ["'f1' stayed at 0.31 (9 values)"]
    assert said(reward=[0.0] * 8) == ["'reward' was 0 in all 8 values"]


def test_held_out_metrics_that_get_worse_are_said() -> None:
    assert said(val_loss=[1.0, 0.6, 0.5, 0.55, 0.6, 0.7, 0.8]) == ["'val_loss' rose from 0.5 at step 33 to 0.8"]
    assert said(val_acc=[0.5, 0.6, 0.7, 0.75, 0.74, 0.6, 0.5]) == ["'val_acc' fell from 0.75 at step 50 to 0.5"]


@pytest.mark.parametrize(
    "values",
    [
        {"accuracy": [0.1, 0.1, 0.1, 0.1]},  # too few
        {"accuracy": [0.1, 0.3, 0.5, 0.7, 0.8, 0.85]},  # it rises
        {"accuracy": [1.0] * 8},  # at its best
        {"val_acc": [0.97, 0.98, 0.97, 0.98, 0.97, 0.98]},
        {"val_acc": [0.5, 0.79, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]},  # it rose at first
        {"accuracy": [0.1, 0.4, 0.05, 0.3, 0.1, 0.35, 0.1, 0.2]},  # noise
        {"accuracy": [0.1, 0.1, float("nan"), 0.1, 0.1, 0.1]},  # a NaN is told by other means
        {"gate": [0.1] * 8},  # a name that says nothing
        {"accuracy": [7.0, 700.0, 7.0, 7.0, 7.0, 7.0]},  # not what its name says
        {"val_loss": [1.0, 0.6, 0.5, 0.45, 0.46, 0.45, 0.47]},  # it has settled
        {"val_loss": [1.0, 0.6, 0.5, 0.45, 0.4, 0.41, 0.8]},  # one bad value at the end
        {"train_loss": [1.0, 0.6, 0.5, 0.6, 0.7, 0.8, 0.9]},  # of training data: the loss itself tells
    ],
)
def test_these_say_nothing(values: dict[str, list[float]]) -> None:
    assert said(**values) == []


def test_healthy_curves_with_noise_are_never_told_of() -> None:
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 40)
    wrong = 0
    for number in range(200):
        noise = rng.choice([0.005, 0.02, 0.05]) * rng.normal(size=(2, 40))
        rise = [0.5 + 0.4 * (1 - np.exp(-5 * x)), 0.2 + 0.6 * x, 0.5 + 0.3 * (1 - np.exp(-30 * x))][number % 3]
        wrong += bool(said(val_acc=list(np.clip(rise + noise[0], 0, 1)), val_loss=list((1.3 - rise) * (1 + noise[1]))))
    assert wrong == 0


def test_without_a_falling_loss_nothing_is_compared() -> None:
    run = logged({"accuracy": [0.1] * 8}, flat(STEPS))
    assert metric_trends(Case(run)) == ()


def test_a_healthy_summary_names_it_and_stays_healthy() -> None:
    plain, beside = diagnose(logged({})), diagnose(logged({"val_acc": [0.1] * 6, "f1": [0.2] * 6}))
    assert plain.verdict == beside.verdict == "healthy"
    assert beside.summary == plain.summary.removesuffix(".") + (
        ", while the logged 'f1' was 0.2 in all 6 values (and 1 more of what was logged did not follow it)."
    )
