"""Other ways in which a cause shows than the one that its story tells, and near twins of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.explain.run_builder import Build, falling, flat
from tests.explain.stories_structure import adversarial, capacity_too_small

from neuraldbg.explain import diagnose
from neuraldbg.nouns import column


def one_mode_at_a_time() -> Build:
    return adversarial(lambda _: 0.15, steps=1100, alike=0.995)


def noise_that_is_hardly_heard() -> Build:
    return adversarial(lambda step: 1e-4, noise=1e-3)


def code_of_one() -> Build:
    b = capacity_too_small().loss_term(kind="mse", classes=64, target={"std": 0.37, "min": 0.0, "max": 1.0})
    return b.loss(falling(400, 0.3, 0.06, 0.001)).loss(0.06, slice(200, None))


def recurrence_that_forgets() -> Build:
    b = Build().loss(flat(60)).fact(
        "experiment", 2, id="Net:input_ignored", name="input_ignored", model="Net", judged=True, ignored=False,
        layer=None, leaves=[], faded=True,
    )  # fmt: skip
    b.layers.insert(0, type(b.layers[0])("rnn", "RNN", "Net", True, ("weight_hh_l0",), {"hidden_size": 16}))
    return b


def argument_without_effect() -> Build:
    return Build().fact(
        "experiment", 2, id="Net:input_ignored", name="input_ignored", model="Net", judged=True, ignored=False,
        layer=None, leaves=["1"],
    )  # fmt: skip


def plateau_of_a_loss_that_should_rise() -> Build:
    waits = {"mode": "max", "first": 2.3, "last": 0.4, "rises": 1, "falls": 11, "cuts": 4, "cut_at": 16}
    return Build().fact(
        "schedule", 59, id=0, type="ReduceLROnPlateau", stream=0, position=12, params={"factor": 0.5}, base_lr=None,
        optimizer_steps=60, made=0, steps=12, double=0, early=0, passes=12, pass_steps=5, waits=waits,
    )  # fmt: skip


def norms_that_begin_at_zero() -> Build:
    b = Build().loss(flat(60))
    b.layer("norm", "BatchNorm1d", ("weight", "bias"), num_features=64)
    for stat in ("min", "max", "mean", "std", "rms"):
        b.stat("param", "norm", stat, 0.0, slice(0, 1), name="weight")
    return b


def threshold_far_out() -> Build:
    b = Build(steps=80)
    b.site("param", "fc2", "s", mean=-150.0, std=0.0, rms=150.0, min=-150.0, max=-150.0, total=64)
    return b.site("param_grad", "fc2", "s", zeros=64, total=64)


def part_that_underflows() -> Build:
    b = Build(steps=80)
    for path, size in (("fc3", 0.0), ("fc1", 0.01)):
        row = b.row("output_grad", path)
        b.sites[row] = type(b.sites[row])("output_grad", path, 0, "", "float16")
        if not size:
            for stat in ("mean", "std", "rms", "min", "max"):
                b.stat("output_grad", path, stat, 0.0)
            count = b.table[0, row, column("count")]
            b.stat("output_grad", path, "zeros", count)
    return b.fact("precision", autocast="float16", param_dtypes=["float32"], scaler=False)


def what_was_learnt_is_destroyed() -> Build:
    b = Build(steps=200).scalar("update_ratio", 0.04, slice(48, 52))
    return b.loss(np.concatenate([falling(50, 2.3, 1.2), flat(150)]))


def part_behind_a_cut() -> Build:
    b = Build()
    paths = [f"vision.{i}" for i in range(4)]
    for path in paths:
        b.layer(path, "Linear", ("weight",), in_features=64, out_features=64)
        b.stat("param", path, "rms", 0.1, name="weight")  # nothing moves it
    return b.params(no_grad=[f"{path}.weight" for path in paths])


def optimizer_of_another_model() -> Build:
    names = [f"fc{i}.weight" for i in (1, 2, 3)]
    return Build().loss(flat(60)).params(not_in_optimizer=names).optimizer_fact(owned=6, idle=6)


def half_precision_sum() -> Build:
    b = Build().loss_term(
        kind="bce_with_logits",
        reduction="sum",
        target_dtype="float16",
        classes=64,
        input={"count": 108_800, "nonfinite": 0},
        target={"count": 108_800, "nonfinite": 0, "min": 0.0, "max": 1.0},
    )
    b.site("activation", "half", dtype="float16", mean=0.0, std=1.0, rms=1.0, min=-5.0, max=5.0)
    return b.loss(np.inf)


def fitted(samples: int, std: float, far: float, losses: object) -> Build:
    """A regression by mean squared error, 32 targets a step, the largest of which is ``far``."""
    b = Build(steps=200).loss_term(kind="mse", reduction="mean", target_shape=[32, 1], input_shape=[32, 1], classes=1)
    b.fact("targets", 199, slot=0, stream=0, kind="mse", alone=True, single=True, batches=200, samples=samples,
           min=0.0, max=far, mean=0.0, std=std)  # fmt: skip
    return b.scalar("batch_size", 64).loss(losses)


def one_target_in_another_unit() -> Build:
    """A step sees 64 rows in two passes, and the loss has 32 targets: 100 ** 2 / 32 is what one of them makes."""
    values = np.full(200, 0.5)
    values[40] = 312.5
    return fitted(6400, 100 / np.sqrt(6400), 100.0, values)


VARIANTS = {
    "one_target_in_another_unit": (one_target_in_another_unit, "bad_batch", None, 40),
    "argument_without_effect": (argument_without_effect, "input_ignored", None, 0),
    "norms_that_begin_at_zero": (norms_that_begin_at_zero, "init_scale_wrong", "norm", 0),
    "plateau_of_a_loss_that_should_rise": (plateau_of_a_loss_that_should_rise, "schedule_error", None, 16),
    "one_mode_at_a_time": (one_mode_at_a_time, "mode_collapse", None, 256),
    "noise_that_is_hardly_heard": (noise_that_is_hardly_heard, "mode_collapse", None, 0),
    "half_precision_sum": (half_precision_sum, "fp16_overflow", "half", 0),
    "recurrence_that_forgets": (recurrence_that_forgets, "vanishing_depth", "rnn", 0),
    "part_that_underflows": (part_that_underflows, "fp16_underflow", "fc3", 0),
    "threshold_far_out": (threshold_far_out, "zero_gradient_path", "fc2", 0),
    "what_was_learnt_is_destroyed": (what_was_learnt_is_destroyed, "lr_too_high", None, 0),
    "optimizer_of_another_model": (optimizer_of_another_model, "optimizer_stale_params", None, 0),
    "part_behind_a_cut": (part_behind_a_cut, "detached_graph", "vision", 0),
    "code_of_one": (code_of_one, "capacity_too_small", "fc2", 0),
}


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_variant_is_named(name):
    make, cause, layer, step = VARIANTS[name]
    found = diagnose(make().build())
    assert [h.cause for h in found.hypotheses[:1]] == [cause], [(h.cause, h.confidence) for h in found.hypotheses]
    top = found.hypotheses[0]
    assert (top.layer, top.step) == (layer, step)
    assert top.confidence >= 0.5


def test_a_generator_with_several_directions_is_not_in_one_mode():
    for alike, steps in ((0.9, 1100), (0.995, 900)):  # as varied as usual; a short run
        found = diagnose(adversarial(lambda _: 0.15, steps=steps, alike=alike).build())
        assert "mode_collapse" not in [h.cause for h in found.hypotheses]


def test_a_target_that_is_common_or_a_loss_that_begins_high_is_no_odd_batch():
    """Rewards of a goal: rare, far from the rest, and in many batches. The first loss is as large as one of them."""
    values = np.concatenate([np.linspace(312.5, 1.0, 40), np.full(160, 0.5)])
    common = np.full(200, 0.5)
    common[40] = 312.5
    for build in (fitted(6400, 100 / np.sqrt(6400), 100.0, values), fitted(6400, 8.0, 100.0, common)):
        assert "bad_batch" not in [h.cause for h in diagnose(build.build()).hypotheses]
