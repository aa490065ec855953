"""Diagnoses and runs made by hand for the tests of this folder: the numbers are invented, the shapes are real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns import (
    STATS,
    Chain,
    ChainEdge,
    ChainNode,
    Diagnosis,
    Event,
    Evidence,
    History,
    Hypothesis,
    Layer,
    Layout,
    Outcome,
    Remedy,
    RunInfo,
    RunRecord,
    Site,
    Unjudged,
    column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

EXPLODING = Diagnosis(
    verdict="failing",
    summary="The loss diverged at step 3 because the learning rate of 100 is far too high, first in conv2",
    run={
        "script": "doomed_digits.py",
        "steps": 45,
        "models": ["ConvNet"],
        "optimizers": ["SGD"],
        "duration_s": 3.42,
        "overhead_ratio": 0.031,
    },
    symptoms=("the loss rose from 2.31 to 4.1e+07 within 3 steps", "the loss is NaN from step 41"),
    hypotheses=(
        Hypothesis(
            cause="lr_too_high",
            category="optimisation",
            confidence=0.93,
            sentence="a learning rate of 100, whose updates are 4.2 times as large as the weights of conv2",
            layer="conv2",
            step=0,
            evidence=(
                Evidence("the update of conv2.weight is 4.2 times its weight", True, 3.0, 4.2, 0.1),
                Evidence("the loss rose right after the first step", True, 2.0, 812.0, 3.0),
                Evidence("inputs are normalised (mean 0.1, std 0.9)", False, 0.5),
            ),
            equivalent=("exploding_depth",),
            remedy=Remedy(
                "Lower the learning rate to about 0.1, and warm it up over the first 100 steps",
                "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
            ),
            rank=1,
            failure="loss divergence",
            title="Learning rate too high",
        ),
        Hypothesis("init_scale_wrong", "architecture", 0.04, "weights of fc1 that are too large", layer="fc1", rank=2),
        Hypothesis("unnormalised_inputs", "data", 0.002, "inputs of scale 16", step=0, rank=3),
    ),
    chain=Chain(
        nodes=(
            ChainNode("lr", "cause", "learning rate too high", step=0),
            ChainNode("up", "event", "update ratio out of range", "conv2", 0),
            ChainNode("ex", "event", "exploding gradients", "conv1", 2),
            ChainNode("nan", "symptom", "the loss is NaN", step=41),
        ),
        edges=(
            ChainEdge("lr", "up", "cause"),
            ChainEdge("up", "ex", "data flow"),
            ChainEdge("up", "nan", "time"),
        ),
    ),
    unjudged=(Unjudged("bad_batch", "the batches were seen only once"),),
)

HEALTHY = Diagnosis(
    verdict="healthy",
    summary="The loss fell from 2.31 to 0.08 over 500 steps and nothing unusual was seen",
    run={"script": "healthy_digits.py", "steps": 500, "models": ["ConvNet"], "optimizers": ["Adam"]},
)


def record(
    layers: tuple[str, ...],
    loss: npt.NDArray[np.float64],
    grad: npt.NDArray[np.float64],
    act: npt.NDArray[np.float64],
    *,
    nonfinite_from: Mapping[str, int] | None = None,
    events: tuple[Event, ...] = (),
    outcome: str = "completed",
    first_step: int = 0,
) -> RunRecord:
    """Build a run: ``loss`` of shape (T,), ``grad`` (norms) and ``act`` (rms) of shape (T, layers)."""
    count, wide = len(loss), len(layers)
    sites = tuple(Site("activation", name) for name in layers) + tuple(
        Site("param_grad", name, name="weight") for name in layers
    )
    table = np.zeros((count, 2 * wide, len(STATS)), np.float32)
    total = 64.0
    table[:, :, column("total")] = table[:, :, column("count")] = total
    table[:, :wide, column("rms")] = act
    table[:, wide:, column("rms")] = grad / np.sqrt(total)
    for name, step in (nonfinite_from or {}).items():
        for row in (layers.index(name), wide + layers.index(name)):
            table[step:, row, column("nonfinite")] = total
            table[step:, row, column("rms")] = np.nan
    steps = np.arange(first_step, first_step + count)
    ones = np.ones(count, np.int64)
    bad = (~np.isfinite(loss)).astype(np.float64)
    return RunRecord(
        info=RunInfo(script="train.py", models=("Net",), optimizers=("SGD",), outcome=Outcome(outcome)),
        layout=Layout(
            layers=tuple(Layer(name, "Linear", "Net", leaf=True, params=("weight",)) for name in layers),
            sites=sites,
            called=frozenset(layers),
        ),
        history=History(
            steps,
            ones,
            steps * 0.01,
            ones * 0,
            np.ones(count, bool),
            table,
            table,
            table,
            {"loss": loss, "loss_nonfinite": bad},
        ),
        events=events,
        steps=first_step + count,
    )


SIX = ("conv1", "conv2", "conv3", "fc1", "fc2", "head")


def failing_run(layers=SIX, steps=60, fail=40, *, nan=True, **settings):
    """A run whose numbers grow tenfold a step from ten steps before the failure."""
    t, depth = np.arange(steps), np.arange(len(layers))
    grown = 10.0 ** np.clip(t - fail + 10, 0, 12)
    loss = 2.0 * grown
    grad = (1 + depth) * grown[:, None]
    if nan:
        loss[fail:] = np.nan
        settings.setdefault("nonfinite_from", dict.fromkeys(layers, fail))
    return record(layers, loss, grad, 1 + 0.1 * depth + 0 * grad, **settings)
