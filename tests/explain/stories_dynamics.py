"""Stories of the causes in how the optimizer moves and in the number format: (fires, silent, layer, step, verdicts)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.explain.run_builder import Build, falling, flat


def stepping(b: Build, type_: str, **group: Any) -> Build:
    """Give a build an optimizer of another kind."""
    b.optimizer = type_
    extra = {k: group.pop(k) for k in ("decayed_norms",) if k in group}
    return b.optimizer_fact(type=type_, groups=[{"lr": b.lr, "params": 6, **group}], **extra)


def shrink(b: Build, kept: float, update: float | None = None) -> Build:
    """Let all weight matrices shrink to a share of their size, by updates that are a share of them."""
    for i in (1, 2, 3):
        size = b.table[0, b.row("param", f"fc{i}", "weight"), 5]
        b.stat("param", f"fc{i}", "rms", np.geomspace(size, kept * size, b.steps), name="weight")
        if update is not None:
            b.stat("update", f"fc{i}", "rms", update * np.geomspace(size, kept * size, b.steps), name="weight")
    return b


def weight_decay_too_high() -> Build:
    b = stepping(Build(steps=200, lr=1e-3), "AdamW", weight_decay=23.0, betas=[0.9, 0.999])
    return shrink(b, 0.01, 0.024).loss(flat(200)).event("loss_plateau", 0)


def decay_of_papers() -> Build:
    b = stepping(Build(steps=200, lr=1e-3), "AdamW", weight_decay=0.3, betas=[0.9, 0.999])
    return shrink(b, 0.8).loss(falling(200))


def decay_on_norms() -> Build:
    b = Build(steps=200, lr=1e-3).layer("norm1", "LayerNorm", ("weight", "bias"))
    b.stat("param", "norm1", "rms", np.geomspace(1.0, 0.02, 200), name="weight")
    b.stat("update", "norm1", "rms", 0.021 * np.geomspace(1.0, 0.02, 200), name="weight")
    stepping(b, "AdamW", weight_decay=20.0, betas=[0.9, 0.999], decayed_norms=["norm1.weight", "norm1.bias"])
    return b.loss(flat(200)).event("loss_plateau", 0)


def gains_that_shrink_and_learn() -> Build:
    b = decay_on_norms()
    b.events.clear()
    return b.loss(falling(200))


def momentum_too_high() -> Build:
    b = stepping(Build(steps=120, lr=0.05), "SGD", momentum=0.99)
    t = np.arange(120)
    b.scalar("descent", np.nan).scalar("descent", np.cos(2 * np.pi * t[::4] / 30), slice(0, None, 4))
    for i in (1, 2, 3):
        b.stat("update", f"fc{i}", "mean", 1e-4 * np.cos(2 * np.pi * t / 30 + 0.1), name="weight")
    rising = 2.3 + 1.5 * np.sin(2 * np.pi * t / 30) ** 2 + 0.05 * t
    return b.loss(rising).event("loss_divergence", 20)


def heavy_and_well() -> Build:
    b = stepping(Build(steps=120, lr=0.005), "SGD", momentum=0.99)
    return b.scalar("descent", np.nan).scalar("descent", 0.4, slice(0, None, 4))


def state(**changes: Any) -> dict[str, Any]:
    """The value of the OPTIMIZER_STATE fact."""
    return {
        "stream": 0, "key": "exp_avg_sq", "dtype": "float32", "eps": 1e-8, "eps_kept": 1e-8, "params": 3,
        "below_eps": 0.0, "typical": 1e-3, **changes,
    }  # fmt: skip


def adam_epsilon() -> Build:
    b = stepping(Build(steps=200, lr=1e-3), "Adam", eps=1.0, betas=[0.9, 0.999]).loss(flat(200))
    for step in (0, 1, 2, 4, 64):
        b.fact("optimizer_state", step, **state(eps=1.0, eps_kept=1.0, below_eps=1.0, typical=1e-3 + 1e-5 * step))
    return b.scalar("update_ratio", 2e-6).event("loss_plateau", 0)


def epsilon_of_a_paper() -> Build:
    b = stepping(Build(steps=200, lr=1e-3), "Adam", eps=1e-3, betas=[0.9, 0.999])
    return b.fact("optimizer_state", 4, **state(eps=1e-3, eps_kept=1e-3, below_eps=0.8, typical=5e-4))


def adam_second_moment_stale() -> Build:
    b = stepping(Build(steps=200, lr=1e-3), "Adam", betas=[0.9, 0.999])
    b.stat("param_grad", "fc1", "rms", 0.3, slice(120, None), name="weight").scalar(
        "update_ratio", 2e-2, slice(121, 131)
    )
    loss = np.concatenate([falling(124, 2.3, 0.5), np.linspace(1.0, 6.0, 20), np.full(56, 6.0)])
    return b.loss(loss + 0.01 * np.random.default_rng(2).standard_normal(200)).event("loss_divergence", 124)


def gradients_that_wake_up() -> Build:
    b = stepping(Build(steps=200, lr=1e-3), "Adam", betas=[0.9, 0.999])
    return b.stat("param_grad", "fc1", "rms", 0.3, slice(120, 124), name="weight")


def warmup_missing() -> Build:
    b = stepping(Build(steps=200, lr=5e-3), "Adam", betas=[0.9, 0.999]).layer("attn", "MultiheadAttention")
    b.scalar("update_ratio", np.maximum(0.2 * np.exp(-np.arange(200) / 10), 5e-3))
    loss = 2.31 + 1.5 * np.exp(-np.arange(200) / 8) + 0.005 * np.random.default_rng(4).standard_normal(200)
    loss[0] = 2.303
    return b.loss(loss).event("update_ratio_high", 0).event("loss_spike", 1)


def brisk_start_with_attention() -> Build:
    b = stepping(Build(steps=200, lr=5e-3), "Adam", betas=[0.9, 0.999]).layer("attn", "MultiheadAttention")
    return b.scalar("update_ratio", np.maximum(0.05 * np.exp(-np.arange(200) / 10), 5e-3))


def course(signal: float, error: float = 0.045) -> dict[str, Any]:
    """The value of the GRADIENT_COURSE fact."""
    windows = [
        {"first": 128 * i, "last": 128 * i + 124, "count": 32, "signal": signal, "error": error} for i in range(3)
    ]
    return {"stream": 0, "windows": windows}


def batch_too_small() -> Build:
    b = Build(steps=384, batch=1, lr=0.05).loss(np.abs(flat(384, 2.3, 0.9)))
    b.fact("gradient_course", 383, **course(0.01))
    b.facts[-1].value["windows"][0]["signal"] = 0.2
    return b.event("loss_plateau", 0)


def single_samples_that_learn() -> Build:
    b = Build(steps=256, batch=1, lr=0.05).loss(np.abs(falling(256, 2.3, 0.3, 0.15)))
    return b.fact("gradient_course", 255, **course(0.01))


def branches(b: Build, cosine: float) -> Build:
    """Two heads behind fc2."""
    names = ["mse of a", "mse of b"]
    for step in (0, 1, 2, 4, 8, 16):
        pair = {"pair": "terms: mse of a / mse of b", "layer": "fc2", "kind": "terms", "names": names}
        b.fact("loss_branches", step, step=step, cosine=cosine, norms=[0.5, 0.45], **pair)
    return b


def gradient_conflict() -> Build:
    return branches(Build(steps=100), -0.97).loss(flat(100)).event("loss_plateau", 0)


def balance_at_the_end() -> Build:
    return branches(Build(steps=100), -0.97)


def recast(b: Build, kinds: tuple[str, ...], dtype: str) -> Build:
    """Change the number format of sites."""
    b.sites = [replace(s, dtype=dtype) if s.kind in kinds else s for s in b.sites]
    return b


def fp16_underflow() -> Build:
    b = recast(Build(steps=100), ("activation", "output_grad"), "float16").loss(flat(100)).event("loss_plateau", 0)
    for i in (1, 2, 3):
        b.stat("output_grad", f"fc{i}", "rms", 5e-8, slice(None))
        b.stat("output_grad", f"fc{i}", "zeros", 0.9 * b.table[0, b.row("output_grad", f"fc{i}"), 0])
    return b.fact("precision", autocast="float16", param_dtypes=["float32"], scaler=False)


def half_with_sparse_gradients() -> Build:
    b = recast(Build(steps=100), ("activation", "output_grad"), "float16")
    for i in (1, 2, 3):
        b.stat("output_grad", f"fc{i}", "zeros", 0.7 * b.table[0, b.row("output_grad", f"fc{i}"), 0])
    return b


def bf16_update_lost() -> Build:
    b = recast(Build(steps=200, lr=1e-4), ("param", "param_grad", "update"), "bfloat16").loss(flat(200))
    for i in (1, 2, 3):
        for name in ("weight", "bias"):
            total = b.table[0, b.row("update", f"fc{i}", name), 0]
            b.stat("update", f"fc{i}", "zeros", total, name=name).stat("update", f"fc{i}", "rms", 0.0, name=name)
    b.scalar("update_ratio", 0.0).event("loss_plateau", 0)
    return b.fact("precision", autocast=None, param_dtypes=["bfloat16"], scaler=False)


def brain_weights_that_learn() -> Build:
    b = recast(Build(steps=200, lr=1e-2), ("param", "param_grad", "update"), "bfloat16")
    for i in (1, 2, 3):
        total = b.table[0, b.row("update", f"fc{i}", "weight"), 0]
        b.stat("update", f"fc{i}", "zeros", 0.8 * total, name="weight")
    return b


TOLD: dict[str, tuple[Any, ...]] = {
    "weight_decay_too_high": (weight_decay_too_high, decay_of_papers, None, 0),
    "decay_on_norms": (decay_on_norms, gains_that_shrink_and_learn, None, 0),
    "momentum_too_high": (momentum_too_high, heavy_and_well, None, 0),
    "adam_epsilon": (adam_epsilon, epsilon_of_a_paper, None, 0),
    "adam_second_moment_stale": (adam_second_moment_stale, gradients_that_wake_up, "fc1", 120),
    "warmup_missing": (warmup_missing, brisk_start_with_attention, None, 0),
    "batch_too_small": (batch_too_small, single_samples_that_learn, None, 0),
    "gradient_conflict": (gradient_conflict, balance_at_the_end, "fc2", 0),
    "fp16_underflow": (fp16_underflow, half_with_sparse_gradients, "fc1", 0),
    "bf16_update_lost": (bf16_update_lost, brain_weights_that_learn, None, 0),
}
