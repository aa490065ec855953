"""Stories of the causes in how a model is built: (fires, silent, layer, step, verdicts, least confidence)."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.explain.run_builder import Build, falling, flat

READ = (0, 1, 2, 4, 8, 16, 32)


def listed(b: Build, key: str, field: str, entries: Any) -> Build:
    """Log a listing fact at each reading step; ``entries`` is a list, or a function of the step."""
    for step in READ:
        b.fact(key, step, step=step, **{field: entries(step) if callable(entries) else entries})
    return b


def rows(layer: str, spread: float, gradient: float, *, zero: bool = False) -> dict[str, Any]:
    return {"name": f"{layer}.weight", "layer": layer, "units": 64, "spread": spread, "zero": zero,
            "gradient": gradient, "gradient_zero": gradient == 0.0}  # fmt: skip


def symmetric_init() -> Build:
    b = listed(Build().loss(flat(60)), "symmetry", "layers", [rows("fc1", 1e-7, 2e-7), rows("fc2", 0.0, 1e-7)])
    return b.event("loss_plateau", 0)


def members_alike(equal: int = 20, read: int = 40) -> Build:
    pair = {"models": ["net", "net2"], "read": read, "equal": equal, "moved": equal, "first": 1, "last": 59}
    names = (["0.weight", "net2.0.weight"], ["2.weight", "net2.2.weight"])
    return Build().fact("equal_weights", 59, matrices=4, pairs=[{"names": each, **pair} for each in names])


def clients_made_equal_now_and_then() -> Build:
    return members_alike(5, 40)


def head_that_begins_at_zero() -> Build:
    return listed(Build(), "symmetry", "layers", lambda step: [rows("fc3", 0.6 if step else 0.0, 0.9, zero=not step)])


AFFINE = {"fc1": ["addmm"], "fc2": ["addmm", "nativebatchnorm"], "fc3": ["addmm"]}


def no_activations() -> Build:
    b = Build()
    b.layers = [layer for layer in b.layers if layer.type == "Linear"]
    return b


def missing_activation() -> Build:
    return no_activations().fact("operations", into=AFFINE)


def activation_in_forward() -> Build:
    return no_activations().fact("operations", into={**AFFINE, "fc2": ["addmm", "gelu"]})


def dropout_too_high() -> Build:
    return Build().layer("drop", "Dropout", p=0.9).loss(flat(60)).event("loss_plateau", 0)


def much_dropout_that_learns() -> Build:
    b = Build().layer("drop", "Dropout", p=0.7)
    return b.fact("dropout", places=[{"before": "drop", "p": 0.7}])


def bn(**changes: Any) -> dict[str, Any]:
    return {"layer": "bn", "momentum": 0.1, "tracking": True, "frozen": False, "still": False, "training": True,
            "fresh": True, "batch": 32, "elements": 32, "mean_gap": 0.2, "var_gap": 0.2, "drift": 0.5, "moved": True,
            **changes}  # fmt: skip


def normed(b: Build | None = None) -> Build:
    return (b or Build()).layer("bn", "BatchNorm1d", ("weight", "bias"), num_features=64)


def batchnorm_small_batch() -> Build:
    b = normed().loss(flat(60)).event("loss_plateau", 0)
    return listed(b, "norms", "layers", [bn(batch=2, elements=2, mean_gap=0.9)])


def one_small_last_batch() -> Build:
    return listed(normed(), "norms", "layers", lambda step: [bn(batch=2, elements=2) if step == 16 else bn()])


def batchnorm_momentum() -> Build:
    return listed(normed().scalar("evals", 3, 20), "norms", "layers", [bn(momentum=0.99, mean_gap=0.3)])


def slow_momentum() -> Build:
    return listed(normed().scalar("evals", 3, 20), "norms", "layers", [bn(momentum=0.01)])


def frozen_norm_drift() -> Build:
    b = normed(Build(steps=80)).scalar("evals", 3, 20)
    return listed(b, "norms", "layers", [bn(frozen=True, still=True, fresh=False, drift=0.6)])


def averaged_teacher() -> Build:
    return listed(normed(), "norms", "layers", lambda s: [bn(frozen=True, still=s == 0, fresh=False, drift=0.6)])


def place(layer: str, entropy: float, logit: float, low: float) -> dict[str, Any]:
    return {"layer": layer, "heads": 8, "keys": 64, "entropy": entropy, "low": low, "logit": logit}


def attention_collapse() -> Build:
    b = Build().loss(np.concatenate([falling(20, 2.3, 1.0), np.linspace(1.0, 6.0, 40)])).event("loss_divergence", 22)

    def at(step: int) -> list[dict[str, Any]]:
        late = step >= 16
        return [place(f"fc{i}", 0.02 if late else 0.8, 900.0 if late else 4.0, 1.0 if late else 0.0) for i in (1, 2)]

    return listed(b, "attention", "places", at)


def some_sharp_heads() -> Build:
    return listed(Build(), "attention", "places", [place("fc1", 0.4, 60.0, 0.4), place("fc2", 0.7, 12.0, 0.1)])


def level(step: int, log_z: float, scale: float, across: float) -> dict[str, Any]:
    out = {"leaf": "", "shape": [32, 10], "across": across, "scale": scale, "alike": 0.9, "log_z": log_z}
    return {"part": "Net", "model": "Net", "batch": 32, "inputs": [], "outputs": [out]}


def logit_drift() -> Build:
    b = Build().loss(np.concatenate([falling(40), np.linspace(0.3, 5.0, 20)])).event("loss_divergence", 45)
    for step in READ:
        b.fact("outputs", step, **level(step, 2.3 + 8 * step, 8.0 * step + 0.5, 2.0))
    return b.fact("precision", autocast="bfloat16", param_dtypes=["float32"], scaler=False)


def margins_that_grow() -> Build:
    b = Build()
    for step in READ:
        b.fact("outputs", step, **level(step, 2.3 + 2 * step, 0.7 * step + 0.5, 0.7 * step))
    return b


def depth_of_tokens(*cosines: float) -> list[dict[str, Any]]:
    return [{"layer": f"fc{i}" if i else "", "tokens": 64, "cosine": c} for i, c in enumerate(cosines)]


def rank_collapse() -> Build:
    b = listed(Build().loss(flat(60)).event("loss_plateau", 0), "attention", "places", [place("fc1", 0.99, 1.0, 0.0)])
    return listed(b, "tokens", "layers", depth_of_tokens(0.1, 0.97, 1.0))


def pooled_tokens() -> Build:
    b = listed(Build(), "attention", "places", [place("fc1", 0.9, 1.0, 0.0)])
    return listed(b, "tokens", "layers", lambda step: depth_of_tokens(0.1, 0.3, 0.5 if step < 16 else 0.97))


def phases(ends: tuple[float, ...]) -> np.ndarray:
    rng = np.random.default_rng(6)
    each = [end + (2.3 - end) * np.exp(-np.arange(40) / 6) + rng.normal(0, 0.01, 40) for end in ends]
    return np.concatenate(each)


def plasticity_loss() -> Build:
    b = Build(steps=240).loss(phases((0.3, 0.5, 0.7, 0.95, 1.2, 1.4)))
    return b.stat("activation", "act2", "dead", np.repeat([4, 12, 20, 28, 36, 44], 40))


def harder_tasks() -> Build:
    return Build(steps=240).loss(phases((0.3, 0.4, 0.5, 0.6, 0.7, 0.75)))


def capacity_too_small() -> Build:
    b = Build(steps=400).loss(falling(400, 2.3, 1.6, 0.02))
    b.layers = [
        type(b.layers[0])("fc2", "Linear", "Net", True, ("weight", "bias"), {"in_features": 64, "out_features": 1})
        if layer.path == "fc2"
        else layer
        for layer in b.layers
    ]
    return b


def narrow_but_enough() -> Build:
    return capacity_too_small().loss(falling(400, 2.3, 0.3, 0.02))


def variety(leaf: str, across: float, scale: float, width: int = 64) -> dict[str, Any]:
    alike = max(0.0, 1 - (across / scale) ** 2)
    return {"leaf": leaf, "shape": [32, width], "across": across, "scale": scale, "alike": alike, "log_z": None}


def adversarial(spread: Any, noise: float = 1.0, steps: int = 200, alike: float | None = None) -> Build:
    """Two optimizers; the generator's outputs vary by ``spread`` of the step, and its inputs are of size ``noise``.

    ``alike`` is the mean cosine of two outputs, if it is not that of outputs around their mean.
    """
    b = Build(steps=steps).loss(0.7 + np.random.default_rng(7).normal(0, 0.02, steps))
    b.stream = np.arange(steps) % 2
    for step in (at for at in (*READ, 64, 128, 256, 512, 1024) if at < steps):
        fake, real = variety("", spread(step), 0.6), variety("", 0.26, 0.5)
        fake = fake if alike is None else fake | {"alike": alike}
        score = variety("", 0.1, 0.3, 1)
        for part, given, out in (("G", variety("", noise, noise, 16), fake), ("D", real, score), ("D", fake, score)):
            b.fact("outputs", step, part=part, model=part, batch=32, inputs=[given], outputs=[out])
    return b


def mode_collapse() -> Build:
    return adversarial(lambda step: 0.2 if step < 32 else 0.004)


def pulled(mine: float, steps: int = 200) -> Build:
    """Two optimizers by turns; the generator's loss pulls scores of its outputs by ``mine``, the critic's by -1."""
    b = Build(steps=steps)
    b.stream = np.arange(steps) % 2
    for step in (at for at in (*READ, 3, 5, 64, 128) if at < steps):
        fake, score = variety("", 0.2 + 1e-4 * step, 0.6), variety("", 0.1, 0.3, 1)
        real = variety("", 0.26, 0.5)
        given = [(real, 1.0), (fake, -1.0)] if step % 2 == 0 else [(fake, mine)]
        b.fact("outputs", step, part="G", model="G", batch=32, inputs=[variety("", 1.0, 1.0, 16)], outputs=[fake])
        for x, pull in given:
            b.fact("outputs", step, part="D", model="D", batch=32, inputs=[x], outputs=[score], pull=pull)
    return b


def adversary_helped() -> Build:
    return pulled(-1.0)


def adversary_opposed() -> Build:
    return pulled(1.0)


def young_generator() -> Build:
    return adversarial(lambda step: 0.02 + 0.001 * step)


TOLD: dict[str, tuple[Any, ...]] = {
    "adversary_helped": (adversary_helped, adversary_opposed, None, 1, "suspect"),
    "attention_collapse": (attention_collapse, some_sharp_heads, "fc1", 16),
    "batchnorm_momentum": (batchnorm_momentum, slow_momentum, "bn", 0, "suspect"),
    "batchnorm_small_batch": (batchnorm_small_batch, one_small_last_batch, "bn", 0),
    "capacity_too_small": (capacity_too_small, narrow_but_enough, "fc2", 0, "suspect", "healthy", 0.5),
    "dropout_too_high": (dropout_too_high, much_dropout_that_learns, "drop", 0),
    "frozen_norm_drift": (frozen_norm_drift, averaged_teacher, "bn", 0, "suspect"),
    "logit_drift": (logit_drift, margins_that_grow, "fc3", 8),
    "members_alike": (members_alike, clients_made_equal_now_and_then, None, 1, "suspect"),
    "missing_activation": (missing_activation, activation_in_forward, "fc1", 0, "suspect"),
    "mode_collapse": (mode_collapse, young_generator, None, 32, "suspect"),
    "plasticity_loss": (plasticity_loss, harder_tasks, "act2", 40),
    "rank_collapse": (rank_collapse, pooled_tokens, "fc1", 0),
    "symmetric_init": (symmetric_init, head_that_begins_at_zero, "fc1", 0),
}
