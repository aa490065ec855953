"""Metrics as calls of functions: the names of a file enter, calls of `neural.pytorch.modules.metrics` leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neural.plan import Plan

FUNCTIONS = {
    "auc": "auc",
    "binary_accuracy": "binary_accuracy",
    "binary_crossentropy": "binary_crossentropy",
    "categorical_accuracy": "categorical_accuracy",
    "categorical_crossentropy": "crossentropy",
    "cosine_similarity": "cosine_similarity",
    "f1": "f1_score",
    "f1_score": "f1_score",
    "hinge": "hinge",
    "kl_divergence": "kl_divergence",
    "mae": "mean_absolute_error",
    "mean_absolute_error": "mean_absolute_error",
    "mean_squared_error": "mean_squared_error",
    "mse": "mean_squared_error",
    "perplexity": "perplexity",
    "precision": "precision",
    "r2_score": "r2_score",
    "recall": "recall",
    "rmse": "root_mean_squared_error",
    "root_mean_squared_error": "root_mean_squared_error",
    "sparse_categorical_accuracy": "sparse_categorical_accuracy",
    "sparse_categorical_crossentropy": "crossentropy",
    "sparse_top_k_categorical_accuracy": "top_k_accuracy",
    "top_k_accuracy": "top_k_accuracy",
    "top_k_categorical_accuracy": "top_k_accuracy",
}
"""`accuracy` depends on the loss, and `loss` is always there."""


def metric_functions(plan: Plan) -> dict[str, str]:
    """Return the functions of the network's metrics by their names in the file."""
    found = {}
    for name in plan.metrics:
        if name == "accuracy":
            found[name] = _accuracy(plan)
        elif name != "loss":
            found[name] = FUNCTIONS[name]
    return found


def _accuracy(plan: Plan) -> str:
    """Return the accuracy that Keras takes."""
    if plan.loss.type.startswith("sparse"):
        return "sparse_categorical_accuracy"
    single = plan.layers[-1].shape[-1:] == (1,)
    return "binary_accuracy" if single or plan.loss.type == "binary_crossentropy" else "categorical_accuracy"
