"""For each cause a run in which it must be named first, and a near twin in which it must stay silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tests.explain import stories_data_flow, stories_dynamics, stories_loop_order, stories_structure, stories_targets
from tests.explain.run_builder import Build, falling, flat
from tests.explain.stories_wiring import WIRING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Story:
    """One cause."""

    fires: Callable[[], Build]
    silent: Callable[[], Build]
    layer: str | None = None
    step: int | None = None
    verdict: str = "failing"
    silent_verdict: str = "healthy"
    least: float = 0.7


def missing_zero_grad() -> Build:
    b = Build().scalar("stale_grad", 1.0, slice(1, None)).scalar("grad_norm", np.linspace(1, 30, 60))
    b.scalar("update_ratio", np.linspace(2e-3, 0.3, 60))
    return b.loss(np.concatenate([falling(20), np.linspace(0.3, 9, 40)])).event("loss_divergence", 25)


def accumulation() -> Build:
    """Four backward passes a step, cleared once: nothing stale at the first of them."""
    return Build().scalar("backwards", 4).scalar("forwards", 4).scalar("grad_norm", 4.0)


def param_not_in_optimizer() -> Build:
    b = Build().params(not_in_optimizer=["fc2.weight", "fc2.bias"])
    for name in ("weight", "bias"):
        b.stat("param", "fc2", "rms", 0.17, name=name).stat("param", "fc2", "mean", 0.0, name=name)
    return b


def custom_optimizer() -> Build:
    """In no optimizer that was seen, but the values move: something else trains it."""
    return Build().params(not_in_optimizer=["fc2.weight", "fc2.bias"])


def optimizer_stale_params() -> Build:
    names = [f"fc{i}.{p}" for i in (1, 2, 3) for p in ("weight", "bias")]
    b = Build().optimizer_fact(foreign=6, foreign_no_grad=6, owned=0).params(not_in_optimizer=names).loss(flat(60))
    b.scalar("update_ratio", np.nan)
    for i in (1, 2, 3):
        for name in ("weight", "bias"):
            b.stat("param", f"fc{i}", "rms", 0.17, name=name).stat("param", f"fc{i}", "mean", 0.0, name=name)
    return b


def learnable_loss_weights() -> Build:
    return Build().optimizer_fact(foreign=2, foreign_no_grad=0)


def param_frozen() -> Build:
    return Build(depth=5).params(frozen=["fc3.weight", "fc3.bias"])


def frozen_backbone() -> Build:
    names = [f"fc{i}.{p}" for i in (1, 2, 3) for p in ("weight", "bias")]
    return Build(depth=5).params(frozen=names)


def param_unused() -> Build:
    b = Build().layer("extra", "Linear", ("weight",), in_features=64, out_features=64)
    for kind in ("activation", "output_grad"):
        b.stat(kind, "extra", "count", 0)
    for kind in ("param_grad", "update"):
        b.stat(kind, "extra", "count", 0, name="weight")
    return b.params(no_grad=["extra.weight"], uncalled=["extra.weight"])


def gan_generator_waits() -> Build:
    """The parameter has no gradient in the other optimizer's steps, but in its own it has."""
    return Build().params(no_grad=["fc2.weight"])


def eval_mode_left_on() -> Build:
    b = Build().layer("drop", "Dropout").layer("bn", "BatchNorm1d", ("weight", "bias"))
    b.scalar("eval_layers", 2, slice(20, None)).scalar("evals", 5, 20)
    b.fact("modes", 20, model="Net", training=False, eval_layers=["drop", "bn"], mode_layers=["drop", "bn"])
    return b


def frozen_batchnorm() -> Build:
    b = Build().layer("bn", "BatchNorm1d", ("weight", "bias")).layer("drop", "Dropout").scalar("eval_layers", 1)
    return b.fact("modes", 1, model="Net", training=True, eval_layers=["bn"], mode_layers=["bn", "drop"])


def double_softmax() -> Build:
    return Build(steps=100).loss(falling(100, 2.303, 1.8)).loss_term(fed_by=["softmax"], normalised=True)


def log_softmax_twice() -> Build:
    return Build().loss_term(fed_by=["logsoftmax"], normalised=False)


def target_broadcast() -> Build:
    b = Build(steps=100).loss(1.0 + 0.4 * np.exp(-np.arange(100) / 5) + np.random.default_rng(3).normal(0, 0.02, 100))
    return b.loss_term(
        kind="mse", operand_shapes=[[32, 1], [32]], input_shape=[32, 32], target_shape=[32, 32],
        broadcast=True, classes=0,
        target={"min": -3, "max": 3, "mean": 0.0, "std": 1.0, "nonfinite": 0, "count": 32},
    )  # fmt: skip


def weighted_by_channel() -> Build:
    return Build().loss_term(kind="mse", operand_shapes=[[32, 10], [10]], broadcast=True, classes=0,
                             target={"min": -3, "max": 3, "mean": 0.0, "std": 1.0, "nonfinite": 0,
                                     "count": 10})  # fmt: skip


def wrong_reduction() -> Build:
    b = Build(batch=128).loss_term(reduction="sum", target_shape=[128], input_shape=[128, 10])
    b.scalar("update_ratio", 0.4).scalar("grad_norm", 300.0)
    return (
        b.loss(np.concatenate([[295.0], 295 * np.exp(np.arange(59) / 8)]))
        .event("loss_divergence", 3)
        .event("exploding_gradients", 0)
    )


def summed_vae() -> Build:
    return Build(optimizer="Adam", lr=1e-3).loss_term(reduction="sum", target_shape=[32, 784], kind="bce")


def unstable_op() -> Build:
    b = Build().site("op", "", "log.input", mean=0.2, std=0.1, rms=0.2, min=0.01, max=1.0, zeros=0)
    b.stat("op", "", "min", 0.0, slice(30, None), name="log.input").stat(
        "op", "", "zeros", 2, slice(30, None), name="log.input"
    )
    return b.loss_term(kind="unknown", classes=0).ruin(30)


def log_of_positive() -> Build:
    b = Build().site("op", "", "log.input", mean=0.2, std=0.1, rms=0.2, min=0.01, max=1.0, zeros=0)
    return b.loss_term(kind="unknown", classes=0)


def nonfinite_input() -> Build:
    b = Build().stat("input", "", "nonfinite", 3, 17).ruin(17, forward=True)
    return b.event("nonfinite_input", 17).event("nonfinite_activation", 17, "fc1")


def masked_input() -> Build:
    return Build().site("input", "", "mask", total=100, nonfinite=40, mean=0.0, std=0.0, rms=0.0, min=0.0, max=0.0)


def bad_batch() -> Build:
    b = Build(steps=80)
    for stat, value in {"max": 900.0, "rms": 150.0, "std": 150.0}.items():
        b.stat("input", "", stat, value, 40)
    b.loss(60.0, 40).scalar("grad_norm", 80.0, 40).event("loss_spike", 40).event("gradient_spike", 40)
    return b.loss(np.concatenate([[2.5], falling(38, 1.5, 0.3)]), slice(41, None))


def odd_but_harmless_batch() -> Build:
    return Build(steps=80).stat("input", "", "max", 900.0, 40).stat("input", "", "rms", 150.0, 40)


def unnormalised_inputs() -> Build:
    b = Build().stat("input", "", "mean", 120.0).stat("input", "", "std", 70.0).stat("input", "", "rms", 139.0)
    b.stat("input", "", "min", 0.0).stat("input", "", "max", 255.0).stat("param_grad", "fc1", "rms", 3.0, name="weight")
    b.scalar("update_ratio", 0.2)
    return (
        b.loss(np.concatenate([[30.0], 30 * np.exp(np.arange(59) / 10)]))
        .event("loss_divergence", 2)
        .event("update_ratio_high", 0)
    )


def pixels_that_work() -> Build:
    b = Build().stat("input", "", "mean", 120.0).stat("input", "", "std", 70.0).stat("input", "", "rms", 139.0)
    return b.stat("input", "", "min", 0.0).stat("input", "", "max", 255.0)


def unnormalised_targets() -> Build:
    b = Build(optimizer="Adam", lr=1e-3).loss(2.5e5 - 10 * np.arange(60) + np.random.default_rng(2).normal(0, 5e3, 60))
    return b.loss_term(kind="mse", classes=0, target_shape=[32, 1], target={
        "min": 100, "max": 900, "mean": 450.0, "std": 220.0, "nonfinite": 0, "count": 32})  # fmt: skip


def prices_that_work() -> Build:
    return Build().loss(falling(60, 2.5e5, 4e3, 1e3)).loss_term(kind="mse", classes=0, target_shape=[32, 1], target={
        "min": 100, "max": 900, "mean": 450.0, "std": 220.0, "nonfinite": 0, "count": 32})  # fmt: skip


def init_scale_wrong() -> Build:
    b = Build(depth=5).loss(40 + flat(60, 0, 3.0))
    for i in range(1, 6):
        b.stat("param", f"fc{i}", "rms", 1.0, name="weight").stat("activation", f"fc{i}", "rms", 8.0**i)
        b.stat("output_grad", f"fc{i}", "rms", 0.01 * 8.0 ** (5 - i))
    return b.event("activation_scale", 0, "fc3").event("exploding_gradients", 0, "fc1").event("loss_plateau", 0)


def usual_init() -> Build:
    return Build(depth=5)


def vanishing_depth() -> Build:
    b = Build(depth=8, activation="sigmoid").loss(flat(60))
    for i in range(1, 9):
        b.stat("output_grad", f"fc{i}", "rms", 0.02 * 0.2 ** (8 - i)).stat(
            "param_grad", f"fc{i}", "rms", 0.02 * 0.2 ** (8 - i), name="weight"
        )
    return b.event("vanishing_gradients", 0, "fc1").event("loss_plateau", 0)


def deep_but_learning() -> Build:
    b = Build(depth=8, activation="tanh")
    for i in range(1, 9):
        b.stat("output_grad", f"fc{i}", "rms", 0.02 * 0.4 ** (8 - i))
    return b.event("vanishing_gradients", 0, "fc1")


def exploding_depth() -> Build:
    b = Build(depth=8).loss(np.concatenate([[2.3, 2.4, 2.6], 2.6 * np.exp(np.arange(57) / 9)]))
    for i in range(1, 9):
        b.stat("output_grad", f"fc{i}", "rms", 0.02 * 4.0 ** (8 - i))
    b.scalar("update_ratio", 0.05).scalar("grad_norm", 400.0)
    return b.event("exploding_gradients", 0, "fc1").event("loss_divergence", 5)


def steep_but_learning() -> Build:
    b = Build(depth=8)
    for i in range(1, 9):
        b.stat("output_grad", f"fc{i}", "rms", 0.02 * 3.0 ** (8 - i))
    return b


def dead_relu() -> Build:
    b = Build().loss(flat(60)).stat("activation", "act2", "dead", 64)
    return b.event("dead_units", 0, "act2").event("loss_plateau", 0)


def some_dead_units() -> Build:
    return Build().stat("activation", "act2", "dead", 38).event("dead_units", 10, "act2")


def saturating_activation() -> Build:
    b = Build(activation="tanh", depth=4).loss(flat(60))
    b.stat("activation", "act2", "saturated", 0.95 * 32 * 64)
    b.stat("output_grad", "fc1", "rms", 1e-6).stat("output_grad", "fc2", "rms", 1e-4)
    return b.event("saturated_units", 0, "act2").event("loss_plateau", 0)


def confident_output() -> Build:
    """A sigmoid behind the last weights is saturated: that is a sure answer, not a fault."""
    b = Build().layer("prob", "Sigmoid")
    return b.stat("activation", "prob", "saturated", 0.95 * 32 * 64)


def lr_too_high() -> Build:
    loss = np.concatenate([[2.31, 840.0, 3.1e6, 5.2e5], 2.31 + np.abs(np.random.default_rng(4).normal(0, 0.3, 56))])
    b = Build(lr=100.0).loss(loss).scalar("update_ratio", 0.01).scalar("update_ratio", [25.0, 8.0, 3.0], slice(0, 3))
    b.scalar("grad_norm", [2.0, 900.0, 3e5], slice(0, 3)).stat("activation", "act2", "dead", 64, slice(1, None))
    b.event("update_ratio_high", 0).event("loss_spike", 1).event("exploding_gradients", 1, "fc1").event(
        "dead_units", 1, "act2"
    )
    return b.event("loss_plateau", 10)


def brisk_but_fine() -> Build:
    return Build(lr=1.0).scalar("update_ratio", 0.12, slice(0, 3)).event("update_ratio_high", 0)


def lr_too_low() -> Build:
    b = Build(steps=200, lr=1e-7).loss(2.303 - 1e-4 * np.arange(200) + np.random.default_rng(5).normal(0, 1e-3, 200))
    return b.scalar("update_ratio", 2e-7).event("update_ratio_low", 0).event("loss_plateau", 0)


def converged() -> Build:
    b = Build(steps=200).scalar("update_ratio", 5e-6, slice(100, None)).loss(falling(200, 2.3, 0.01, 0.002))
    return b.event("update_ratio_low", 120).event("loss_plateau", 150, confidence=0.3, after_learning=True)


def fp16_overflow() -> Build:
    b = Build().site("activation", "attn", dtype="float16", mean=0.0, std=50.0, rms=50.0, min=-200.0, max=300.0)
    b.layer("attn_out", "Linear", ("weight",), in_features=64, out_features=64)
    b.stat("activation", "attn", "max", np.geomspace(300, 65000, 26), slice(0, 26)).ruin(25, forward=True)
    for site in b.sites:
        if site.kind == "activation" and site.module != "attn" and site.module not in ("fc3", "attn_out"):
            b.stat("activation", site.module, "nonfinite", 0, 25)
    b.layers.insert(2, type(b.layers[0])("attn", "SelfAttention", "Net", True))
    return b.fact("precision", autocast="float16", param_dtypes=["float32"], scaler=False)


def scaler_searches() -> Build:
    """The gradient scaler skips the first steps while it looks for its scale."""
    b = Build().scalar("loss_scale", 32768.0).scalar("skipped", 1, slice(0, 3))
    b.site("activation", "half", dtype="float16", mean=0.0, std=1.0, rms=1.0, min=-5.0, max=5.0)
    for i in (1, 2, 3):
        b.stat("param_grad", f"fc{i}", "nonfinite", 5, slice(0, 3), name="weight")
    return b.scalar("grad_norm", np.inf, slice(0, 3))


def memory_leak() -> Build:
    kept = ["train.py", 48, "losses.append(loss)"]
    made = ["train.py", 44, "loss = F.mse_loss(model(x), y)"]
    found = {
        "type": "Tensor with its graph", "shape": [], "dtype": "float32", "per_step": 1.0, "bytes_per_step": 64.0,
        "operations_per_step": 6.0, "alive": 43, "with_graph": True, "made": made, "kept": kept, "holder": "losses",
        "mended": "losses.append(loss.item())",
    }  # fmt: skip
    return Build().fact("growth", 54, first=2, last=54, counts=8, resident_per_step=900.0, survivors=[found])


def kept_on_purpose() -> Build:
    """Tensors without a graph: nobody knows what they are kept for."""
    build = memory_leak()
    survivor = build.facts[-1].value["survivors"][0]
    survivor |= {"type": "Tensor", "with_graph": False, "operations_per_step": 0.0}
    return build


STORIES = {
    "memory_leak": Story(memory_leak, kept_on_purpose, None, 2, "suspect"),
    "missing_zero_grad": Story(missing_zero_grad, accumulation, None, 1),
    "param_not_in_optimizer": Story(param_not_in_optimizer, custom_optimizer, "fc2", 0, "suspect"),
    "optimizer_stale_params": Story(optimizer_stale_params, learnable_loss_weights, None, 0),
    "param_frozen": Story(param_frozen, frozen_backbone, "fc3", 0, "suspect"),
    "param_unused": Story(param_unused, gan_generator_waits, "extra", 0, "suspect"),
    "eval_mode_left_on": Story(eval_mode_left_on, frozen_batchnorm, None, 20, "suspect"),
    "double_softmax": Story(double_softmax, log_softmax_twice, "fc3", 0, "suspect"),
    "target_broadcast": Story(target_broadcast, weighted_by_channel, "fc3", 0),
    "wrong_reduction": Story(wrong_reduction, summed_vae, None, 0),
    "unstable_op": Story(unstable_op, log_of_positive, "fc3", 30),
    "nonfinite_input": Story(nonfinite_input, masked_input, None, 17),
    "bad_batch": Story(bad_batch, odd_but_harmless_batch, None, 40, "suspect"),
    "unnormalised_inputs": Story(unnormalised_inputs, pixels_that_work, "fc1", 0),
    "unnormalised_targets": Story(unnormalised_targets, prices_that_work, "fc3", 0),
    "init_scale_wrong": Story(init_scale_wrong, usual_init, "fc1", 0),
    "vanishing_depth": Story(vanishing_depth, deep_but_learning, "fc1", 0),
    "exploding_depth": Story(exploding_depth, steep_but_learning, "fc1", 0),
    "dead_relu": Story(dead_relu, some_dead_units, "act2", 0),
    "saturating_activation": Story(saturating_activation, confident_output, "act2", 0),
    "lr_too_high": Story(lr_too_high, brisk_but_fine, None, 0),
    "lr_too_low": Story(lr_too_low, converged, None, 0),
    "fp16_overflow": Story(fp16_overflow, scaler_searches, "attn", 25),
}
STORIES |= {name: Story(*parts) for name, parts in WIRING.items()}
STORIES |= {name: Story(*told) for name, told in stories_dynamics.TOLD.items()}
STORIES |= {name: Story(*told) for name, told in stories_loop_order.TOLD.items()}
STORIES |= {name: Story(*told) for name, told in stories_structure.TOLD.items()}
STORIES |= {name: Story(*told) for name, told in stories_targets.TOLD.items()}
STORIES |= {name: Story(*told) for name, told in stories_data_flow.TOLD.items()}
