"""What was learnt about the program: certain, not statistical. A fact is logged when it is first seen or changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class FactKey(str, Enum):
    """The facts that capture reads. The value of each is a JSON object of the shape given here."""

    LOSS = "loss"
    """The loss graph of one backward, keyed per stream: {"stream": int, "ops": [str, ...] (from the loss back to the
    first layer outputs), "terms": [TERM, ...]} with TERM = {"kind": "cross_entropy" | "nll" | "mse" | "l1" |
    "smooth_l1" | "huber" | "bce" | "bce_with_logits" | "kl_div" | "squared_error" | "unknown", "reduction": "mean" |
    "sum" | "none", "input_shape": [int], "target_shape": [int], "operand_shapes": [[int], [int]] (as the user wrote
    them, before any broadcasting), "broadcast": bool, "fed_by": [str] (ops and activation layers between the model's
    last layer and the loss: "softmax", "sigmoid"), "layer": str | None (the last layer before it), "target": STATS,
    "input": STATS, "target_dtype": str, "classes": int, "target_histogram": {class: count}, "normalised": bool (input
    rows sum to 1 and lie in [0, 1])} with STATS = {"min", "max", "mean", "std", "nonfinite", "count"}."""

    BATCH = "batch"
    """The root model's inputs: {"model": str, "inputs": {leaf: {"shape": [int], "dtype": str, "column_std_min": float,
    "column_std_max": float, "column_mean_absmax": float, "image": bool}}}. Columns are features of 2-D inputs."""

    MODES = "modes"
    """Modes during a forward pass with gradients: {"model": str, "training": bool, "eval_layers": [path of dropout or
    batch-norm layers in eval mode], "mode_layers": [path of all dropout and batch-norm layers]}."""

    PARAMS = "params"
    """Where the parameters of all watched models stand: {"total": int, "frozen": [name] (requires_grad=False and in a
    called layer), "not_in_optimizer": [name] (got a gradient, in no group of any optimizer seen), "no_grad": [name]
    (requires grad, gradient None at the step), "uncalled": [name] (owner never called), "zero_lr": [name],
    "tied": [[name, name]]}.
    Logged at the first steps and then at steps 2**k."""

    OPTIMIZER = "optimizer"
    """One optimizer: {"stream": int, "type": str, "groups": [{"lr", "weight_decay", "momentum", "betas", "eps",
    "params": int}], "foreign": int (tensors of its groups that no watched model owns), "foreign_no_grad": int (those
    of them whose gradient is None), "frozen": int (those that do not require gradients), "owned": int,
    "foreign_shapes": [[int]] (at most 8)}."""

    PRECISION = "precision"
    """{"autocast": str | None (dtype), "param_dtypes": [str], "scaler": bool}."""


@dataclass(frozen=True)
class Fact:
    """One fact as of one step."""

    step: int
    key: str
    """One of FactKey, as its string."""
    value: dict[str, Any]
