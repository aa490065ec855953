"""Two older ways to judge a training, run on the same records: a RunRecord enters, the symptoms that they name leave.

Neither names causes. ``POINTS_TO`` says to which causes their documentation, read generously, would send a person; a
baseline counts as right when the true cause is anywhere in the union of what its symptoms point to, which favours it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.control import TriggerEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from neuraldbg.nouns import RunRecord

    Floats = npt.NDArray[np.float64]

_BLOWN_UP = (
    "lr_too_high",
    "exploding_depth",
    "init_scale_wrong",
    "unstable_op",
    "nonfinite_input",
    "bad_batch",
    "fp16_overflow",
    "degenerate_batch",
)
POINTS_TO: dict[str, tuple[str, ...]] = {
    # Thresholds as Neural Observer has them: "gradient explosions, loss spikes, NaNs".
    "loss_not_finite": _BLOWN_UP,
    "gradient_above_100": (
        "lr_too_high",
        "exploding_depth",
        "init_scale_wrong",
        "missing_zero_grad",
        "unnormalised_inputs",
        "unnormalised_targets",
        "wrong_reduction",
    ),
    "loss_spike": ("lr_too_high", "bad_batch", "adam_second_moment_stale", "warmup_missing", "momentum_too_high"),
    # SageMaker Debugger's rules, by what their pages say that the condition leads to or comes from.
    "VanishingGradient": (
        "vanishing_depth",
        "saturating_activation",
        "init_scale_wrong",
        "fp16_underflow",
        "zero_gradient_path",
        "dead_relu",
    ),
    "ExplodingTensor": _BLOWN_UP,
    "WeightUpdateRatio": ("lr_too_high", "lr_too_low", "bf16_update_lost", "update_lost", "optimizer_step_missing"),
    "AllZero": ("symmetric_init", "dead_relu", "zero_gradient_path", "input_ignored"),
    "UnchangedTensor": (
        "param_frozen",
        "param_not_in_optimizer",
        "param_unused",
        "optimizer_stale_params",
        "optimizer_step_missing",
        "detached_graph",
        "update_lost",
        "bf16_update_lost",
        "lr_too_low",
        "zero_gradient_path",
    ),
    "LossNotDecreasing": ("lr_too_high", "lr_too_low", "init_scale_wrong", "capacity_too_small", "label_noise"),
    "DeadRelu": ("dead_relu", "lr_too_high"),
    "SaturatedActivation": ("saturating_activation", "init_scale_wrong", "unnormalised_inputs"),
    "PoorWeightInitialization": ("init_scale_wrong", "symmetric_init", "vanishing_depth", "exploding_depth"),
}
_PAGES = "https://docs.aws.amazon.com/sagemaker/latest/dg"
_RULES = "https://github.com/awslabs/sagemaker-debugger, docs/rules/FirstPartyRules.md"
DEFAULTS = (
    ("VanishingGradient", "mean absolute gradient of a tensor below 1e-7", f"{_PAGES}/vanishing-gradient.html"),
    ("ExplodingTensor", "a NaN or an infinity in any tensor (only_nan is False)", _RULES),
    ("WeightUpdateRatio", "update over weight above 10 or below 1e-8", _RULES),
    ("AllZero", "100% of a tensor's values are zero; applied to weights and gradients", f"{_PAGES}/all-zero.html"),
    ("UnchangedTensor", "a weight the same over 3 steps as numpy.allclose has it (1e-5, 1e-8)", _RULES),
    ("LossNotDecreasing", "a loss not below that of 10 steps before (diff_percent 0.0)", _RULES),
    ("DeadRelu", "more than 50% of a layer's ReLUs inactive", f"{_PAGES}/dead-relu.html"),
    (
        "SaturatedActivation",
        "more than 50% of a layer's tanh or sigmoid units at a bound",
        f"{_PAGES}/saturated-activation.html",
    ),
    (
        "PoorWeightInitialization",
        "variances of the layers' inputs a factor above 10 apart in the first 10 steps, loss not falling for 5",
        f"{_PAGES}/poor-weight-initialization.html",
    ),
)
"""Rule, what it fires on by default, and where that is said."""
_MEAN_ABS = float(np.sqrt(2 / np.pi))
"""Mean absolute value over root mean square, of a normal distribution: records hold the latter."""


def causes(symptoms: frozenset[str]) -> frozenset[str]:
    """Return all causes that some symptoms point to."""
    return frozenset(cause for symptom in symptoms for cause in POINTS_TO[symptom])


def thresholds(run: RunRecord) -> frozenset[str]:
    """Judge a run as Neural Observer does: gradient norm of a layer above 100, loss above 3 times its average, NaN.

    Each optimizer has an engine of its own. Every step is looked at, which the original, at each tenth, does not.
    """
    loss, steps = run.history.scalars.get("loss"), range(len(run.history))
    if loss is None:
        return frozenset()
    norms, found = _layer_norms(run), set()
    engines: dict[int, TriggerEngine] = {}
    for t in steps:
        engine = engines.setdefault(int(run.history.stream[t]), TriggerEngine(100.0, 3.0))
        bad = "loss_nonfinite" in run.history.scalars and run.history.scalars["loss_nonfinite"][t] > 0
        value = float("nan") if bad else float(loss[t])
        known = None if np.isnan(value) and not bad else value
        reason = engine.check(known, {layer: float(series[t]) for layer, series in norms.items()})
        if reason is not None:
            found.add(_named(reason))
    return frozenset(found)


def _named(reason: str) -> str:
    if "gradient norm" in reason:
        return "gradient_above_100"
    return "loss_spike" if "moving average" in reason else "loss_not_finite"


def _layer_norms(run: RunRecord) -> dict[str, Floats]:
    squares: dict[str, Floats] = {}
    for row, site in _rows(run, "param_grad"):
        square = np.nan_to_num(run.history.stat(row, "rms") ** 2 * run.history.stat(row, "total"))
        bad = run.history.stat(row, "nonfinite", "max") > 0
        square = np.where(bad, np.inf, square)
        squares[site] = squares.get(site, np.zeros(len(run.history))) + square
    return {layer: np.sqrt(square) for layer, square in squares.items()}


def _rows(run: RunRecord, *kinds: str) -> list[tuple[int, str]]:
    sites = run.layout.sites[: run.history.mean.shape[1]]
    return [(row, site.module) for row, site in enumerate(sites) if site.kind in kinds]


def _stat(run: RunRecord, row: int, name: str) -> Floats:
    """One statistic where it was measured."""
    values = run.history.stat(row, name)
    return values[(run.history.stat(row, "count", "max") > 0) & np.isfinite(values)]


def rules(run: RunRecord) -> frozenset[str]:
    """Judge a run by SageMaker Debugger's built-in rules with their defaults, each step looked at."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return frozenset(name for name, fires in _RULE.items() if len(run.history) and fires(run))


def _vanishing(run: RunRecord) -> bool:
    return any((_stat(run, row, "rms") * _MEAN_ABS < 1e-7).any() for row, _ in _rows(run, "param_grad"))


def _exploding(run: RunRecord) -> bool:
    rows = [row for row, _ in _rows(run, "activation", "output_grad", "param", "param_grad", "input")]
    lost = run.history.scalars.get("loss_nonfinite")
    return bool((run.history.stat(rows, "nonfinite", "max") > 0).any() or (lost is not None and (lost > 0).any()))


def _update_ratio(run: RunRecord) -> bool:
    layout = run.layout
    weights = {(s.module, s.name): row for row, s in enumerate(layout.sites) if s.kind == "param"}
    for row, _ in _rows(run, "update"):
        weight = weights.get((layout.sites[row].module, layout.sites[row].name))
        if weight is None:
            continue
        ratio = run.history.stat(row, "rms") / (run.history.stat(weight, "rms") + 1e-9)
        ratio = ratio[np.isfinite(ratio)]
        if ((ratio > 10) | (ratio < 1e-8)).any():
            return True
    return False


def _all_zero(run: RunRecord) -> bool:
    rows = [row for row, _ in _rows(run, "param", "param_grad")]
    return any((_stat(run, row, "rms") == 0).any() for row in rows)


def _unchanged(run: RunRecord) -> bool:
    layout = run.layout
    weights = {(s.module, s.name): row for row, s in enumerate(layout.sites) if s.kind == "param"}
    moved = {(layout.sites[row].module, layout.sites[row].name) for row, _ in _rows(run, "update")}
    if set(weights) - moved and len(run.history) >= 3:
        return True  # a weight that no optimizer holds never changes
    for row, _ in _rows(run, "update"):
        weight = weights.get((layout.sites[row].module, layout.sites[row].name))
        if weight is None:
            continue
        still = run.history.stat(row, "rms") <= 1e-8 + 1e-5 * run.history.stat(weight, "rms")
        if len(still) >= 3 and (still[:-2] & still[1:-1] & still[2:]).any():
            return True
    return False


def _not_decreasing(run: RunRecord) -> bool:
    for stream in run.streams:
        loss = run.scalar("loss", stream).values[::10]
        if len(loss) > 1 and not (np.diff(loss) < 0).all():
            return True
    return False


def _dead_relu(run: RunRecord) -> bool:
    for row, _ in _rows(run, "activation"):
        units, dead = run.history.stat(row, "units"), run.history.stat(row, "dead")
        if (units > 0).any() and (dead[units > 0] / units[units > 0] > 0.5).any():
            return True
    return False


def _saturated(run: RunRecord) -> bool:
    for row, _ in _rows(run, "activation"):
        count, at_bound = run.history.stat(row, "count"), run.history.stat(row, "saturated")
        if (count > 0).any() and (at_bound[count > 0] / count[count > 0] > 0.5).any():
            return True
    return False


def _poor_initialisation(run: RunRecord) -> bool:
    variances = [_stat(run, row, "std")[:10] ** 2 for row, _ in _rows(run, "activation")]
    variances = [v for v in variances if len(v)]
    loss = run.scalar("loss").values[:10]
    if len(variances) < 2 or len(loss) < 6 or (np.diff(loss[-6:]) < 0).any():
        return False
    middles = [float(np.median(v)) for v in variances]
    return max(middles) > 10 * min(middles)


_RULE: dict[str, Callable[[RunRecord], bool]] = {
    "VanishingGradient": _vanishing,
    "ExplodingTensor": _exploding,
    "WeightUpdateRatio": _update_ratio,
    "AllZero": _all_zero,
    "UnchangedTensor": _unchanged,
    "LossNotDecreasing": _not_decreasing,
    "DeadRelu": _dead_relu,
    "SaturatedActivation": _saturated,
    "PoorWeightInitialization": _poor_initialisation,
}
