"""Stories of the training loop: for each cause of its order a run that has it, and a near twin that means it."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.explain.run_builder import Build, falling, flat

from neuraldbg.nouns import Outcome


def _accumulation(**changes: Any) -> Build:
    about = {"backwards": 4, "forwards": 4, "wiped": 0, "divisor": 4.0, "kinds": ["nllloss"], "by_hand": False}
    b = Build().scalar("backwards", 4).scalar("forwards", 4)
    return b.fact("accumulation", **{"stream": 0, **about, **changes})


def accumulation_wiped() -> Build:
    return _accumulation(wiped=3).scalar("wiped", 3)


def accumulation_kept() -> Build:
    return _accumulation().scalar("wiped", 0)


def accumulation_unscaled() -> Build:
    b = _accumulation(backwards=16, forwards=16, divisor=1.0).scalar("backwards", 16).scalar("forwards", 16)
    b.scalar("update_ratio", 0.5).loss(np.concatenate([[2.3], 2.3 * np.exp(np.arange(59) / 12)]))
    return b.event("loss_divergence", 3)


def sum_that_fits() -> Build:
    return _accumulation(backwards=16, forwards=16, divisor=1.0).scalar("backwards", 16).scalar("forwards", 16)


def optimizer_step_missing() -> Build:
    return Build(lr=0.0).loss(flat(60)).scalar("update_ratio", np.nan)


def warmup_from_nought() -> Build:
    return Build().scalar("lr", np.minimum(np.arange(60) / 20, 1) * 0.1)


def _clip(**changes: Any) -> Build:
    none = dict.fromkeys(("right", "after_step", "before_backward", "between", "empty", "scaled", "exceeded"), 0)
    about = {"stream": 0, "kind": "norm", "limit": 0.5, "calls": 59, **none, "scale": 1.0, "worst": 0.0, "first": None}
    return Build().fact("clip", **{**about, **changes})


def clip_misplaced() -> Build:
    return _clip(after_step=59, exceeded=40, worst=7.5, first=1)


def misplaced_but_never_needed() -> Build:
    return _clip(after_step=59, exceeded=0, worst=0.4, first=1)


def clip_too_tight() -> Build:
    b = Build(optimizer="SGD").loss(flat(60)).scalar("unclipped_norm", 5.0).scalar("clip_limit", 1e-3)
    return b.scalar("update_ratio", 1e-6).scalar("grad_norm", 1e-3)


def clipped_and_learning() -> Build:
    return Build().scalar("unclipped_norm", 5.0).scalar("clip_limit", 0.1)


def schedule_error() -> Build:
    loss = np.concatenate([falling(20, 2.3, 1.2), np.full(40, 1.2) + flat(40, 0.0)])
    return Build().loss(loss).scalar("lr", np.where(np.arange(60) < 20, 0.1, 0.0))


def line_to_the_end() -> Build:
    return Build().scalar("lr", 0.1 * (1 - np.arange(60) / 60))


def _memory(remade: int, every: int) -> Build:
    about = {"stateful": True, "steps": 60, "remade": remade, "emptied": 0, "every": every, "first": every}
    return Build(optimizer="Adam", lr=1e-3).fact("memory", **{"stream": 0, "type": "Adam", **about, "same_lr": True})


def optimizer_state_lost() -> Build:
    return _memory(59, 1)


def two_phases() -> Build:
    return _memory(1, 30)


def update_lost() -> Build:
    b = Build()
    for stat in ("mean", "std", "rms", "min", "max"):
        b.stat("update", "fc2", stat, 0.0, name="weight")
    return b


def group_without_rate() -> Build:
    return update_lost().params(zero_lr=["fc2.weight"])


def _scaler(**changes: Any) -> Build:
    none = dict.fromkeys(("skipped", "unscaled", "discarded", "direct", "mixed"), 0)
    about = {"scaled": 60, "used": 60, "steps": 60, "updates": 60, **none, "scale": 65536.0, "first": None}
    return Build().fact("scaler", **{**about, **changes})


def loss_scale_misuse() -> Build:
    return _scaler(direct=60, steps=0, updates=0, first=0)


def scaler_in_order() -> Build:
    return _scaler(skipped=2)


def _contract(**changes: Any) -> Build:
    about = {
        "function": "torch.nn.functional.cosine_embedding_loss", "rule": "signs", "given": "values of 0 and 1",
        "link": "https://docs.pytorch.org/docs/stable/", "broken": 12, "calls": 12, "first": 0, "last": 48,
    }  # fmt: skip
    return Build().fact("contracts", broken=[about | changes])


def function_misused() -> Build:
    return _contract()


def rule_that_most_calls_keep() -> Build:
    return _contract(broken=1)


def value_unused(name: str = "kld", text: str = "kld = -0.5 * (1 + s - m**2 - s.exp()).sum()") -> Build:
    value = {"name": name, "how": "assigned", "place": ["t.py", 12, text], "function": "loss_of"}
    return Build().fact("unused", 59, values=[value])


def batch_size_that_is_not_used() -> Build:
    return value_unused("n", "n = len(batch)")


def freed_graph() -> Build:
    build = Build(steps=1)
    build.outcome = Outcome(
        "raised", "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed). Saved intermediate values of the graph are freed.", "t.py:9",
    )  # fmt: skip
    return build


def error_of_the_program() -> Build:
    build = Build()
    build.outcome = Outcome("raised", "KeyError: 'hidden'", "t.py:9")
    return build


def _written(values: np.ndarray) -> Build:
    about = {"stream": 0, "name": "", "names": ["fc2.weight"], "since": 149, "until": 150}
    return Build(steps=240).loss(values).fact("change", 150, what="weights", before=None, after=1.4, **about)


def weights_overwritten() -> Build:
    values = falling(240, last=0.05, noise=0.01)
    values[150:] = 9.0
    return _written(values).event("loss_divergence", 150)


def return_to_a_better_state() -> Build:
    return _written(falling(240, last=0.05, noise=0.01))


TOLD = {
    "accumulation_unscaled": (accumulation_unscaled, sum_that_fits, None, 0),
    "accumulation_wiped": (accumulation_wiped, accumulation_kept, None, 0, "suspect"),
    "clip_misplaced": (clip_misplaced, misplaced_but_never_needed, None, 1, "suspect"),
    "clip_too_tight": (clip_too_tight, clipped_and_learning, None, 0),
    "function_misused": (function_misused, rule_that_most_calls_keep, None, 0, "suspect"),
    "loss_scale_misuse": (loss_scale_misuse, scaler_in_order, None, 0, "suspect"),
    "optimizer_state_lost": (optimizer_state_lost, two_phases, None, 1, "suspect"),
    "optimizer_step_missing": (optimizer_step_missing, warmup_from_nought, None, 0),
    "refused_operation": (freed_graph, error_of_the_program, None, 1, "failing", "failing", 0.9),
    "schedule_error": (schedule_error, line_to_the_end, None, 20, "suspect"),
    "update_lost": (update_lost, group_without_rate, "fc2", 0, "suspect"),
    "value_unused": (value_unused, batch_size_that_is_not_used, None, 0, "suspect", "healthy", 0.5),
    "weights_overwritten": (weights_overwritten, return_to_a_better_state, "fc2", 150),
}
"""For each cause the run in which it must be named, the twin in which it must not, layer, step and verdict."""
