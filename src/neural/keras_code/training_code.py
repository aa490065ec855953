"""Write how a network is trained with Keras: loss, optimizer, schedule and metrics enter as a `Plan`, text leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neural.check.registered_parts import OPTIMIZERS
from neural.keras_code.layer_code import given, literal
from neural.pytorch.layer_code import arguments
from neural.pytorch.training_code import NoSuchTraining

if TYPE_CHECKING:
    from neural.plan import Plan

LOSSES = {
    "binary_crossentropy": "BinaryCrossentropy",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "cosine_similarity": "CosineSimilarity",
    "hinge": "Hinge",
    "huber": "Huber",
    "kl_divergence": "KLDivergence",
    "log_cosh": "LogCosh",
    "mean_absolute_error": "MeanAbsoluteError",
    "mean_squared_error": "MeanSquaredError",
    "poisson": "Poisson",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
    "squared_hinge": "SquaredHinge",
}
METRICS = {
    "auc": "AUC",
    "binary_accuracy": "BinaryAccuracy",
    "binary_crossentropy": "BinaryCrossentropy",
    "categorical_accuracy": "CategoricalAccuracy",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "cosine_similarity": "CosineSimilarity",
    "f1": "F1",
    "f1_score": "F1",
    "hinge": "Hinge",
    "kl_divergence": "KLDivergence",
    "mae": "MeanAbsoluteError",
    "mean_absolute_error": "MeanAbsoluteError",
    "mean_squared_error": "MeanSquaredError",
    "mse": "MeanSquaredError",
    "perplexity": "Perplexity",
    "precision": "Precision",
    "r2_score": "R2Score",
    "recall": "Recall",
    "rmse": "RootMeanSquaredError",
    "root_mean_squared_error": "RootMeanSquaredError",
    "sparse_categorical_accuracy": "CategoricalAccuracy",
    "sparse_categorical_crossentropy": "CategoricalCrossentropy",
    "sparse_top_k_categorical_accuracy": "TopKCategoricalAccuracy",
    "top_k_accuracy": "TopKCategoricalAccuracy",
    "top_k_categorical_accuracy": "TopKCategoricalAccuracy",
}
"""The classes for one-hot targets; `accuracy` depends on the loss, and `loss` is always there."""
SPARSE = ("CategoricalAccuracy", "CategoricalCrossentropy", "TopKCategoricalAccuracy")
"""Those that Keras also has for numbers of classes, with `Sparse` before the name."""
OWN = ("F1", "OfClasses", "Perplexity")


def loss_code(plan: Plan) -> str:
    """Return the expression of the loss, which is of the file's last activation."""
    usual = {"delta": 1.0, "from_logits": False, "label_smoothing": 0.0}
    words = {name: usual[name] for name in plan.loss.parameters if name in usual}
    return f"keras.losses.{LOSSES[plan.loss.type]}({arguments(**given(plan.loss.parameters, **words))})"


def optimizer_code(plan: Plan) -> str:
    """Return the expression of the optimizer, with the parameters that are not Keras's defaults."""
    values: Any = plan.optimizer.parameters
    known = {each.name: each.default for each in OPTIMIZERS[plan.optimizer.type.lower()].parameters}
    rate = _schedule(plan) or repr(values["learning_rate"])
    words = {name: text for name, text in given(values, **known).items() if name != "learning_rate"}
    if plan.training["gradient_clip"]:
        words["global_clipnorm"] = repr(plan.training["gradient_clip"])
    limits = [name for name in ("clipnorm", "clipvalue", "global_clipnorm") if name in words]
    if len(limits) > 1:
        raise NoSuchTraining(f"{' and '.join(limits)} together are not built: an optimizer of Keras takes one of them")
    return f"keras.optimizers.{plan.optimizer.type}({arguments(rate, **words)})"


def _schedule(plan: Plan) -> str:
    """Return the expression of a schedule by steps, "" if there is none."""
    if plan.schedule is None or plan.schedule.type == "StepDecay":
        return ""
    values: Any = plan.schedule.parameters
    usual = {"staircase": False, "end_learning_rate": 0.0001, "power": 1.0, "cycle": False, "alpha": 0.0}
    needed = [list(value) if isinstance(value, tuple) else value for key, value in values.items() if key not in usual]
    words = given(values, **{name: default for name, default in usual.items() if name in values})
    return f"keras.optimizers.schedules.{plan.schedule.type}({arguments(*needed, **words)})"


def rate_by_epoch(plan: Plan) -> str:
    """Return the expression of the rate in `epoch`, "" if the rate does not change by epochs."""
    if plan.schedule is None or plan.schedule.type != "StepDecay":
        return ""
    values: Any = plan.schedule.parameters
    return (
        f"{plan.optimizer.parameters['learning_rate']!r} * {values['decay_rate']} ** (epoch // {values['decay_steps']})"
    )


def metrics_code(plan: Plan) -> tuple[list[str], set[str]]:
    """Return the expressions of the metrics, and the names of `neural.keras_code.modules` that they use."""
    sparse = plan.loss.type.startswith("sparse")
    found = []
    for name in dict.fromkeys(plan.metrics):
        if name == "loss":
            continue
        kind = _accuracy(plan) if name == "accuracy" else METRICS[name]
        if kind == "R2Score" and len(plan.layers[-1].shape) != 1:
            raise NoSuchTraining("the metric r2_score is built for an output of one axis only")
        if sparse and kind in SPARSE:
            kind = f"Sparse{kind}"
        home = "" if kind in OWN else "keras.metrics."
        classes = plan.layers[-1].shape[-1]
        # Keras cannot look for the 5 largest of fewer classes.
        words = arguments(k=classes if "TopK" in kind and classes and classes < 5 else None, name=literal(name))
        made = f"{home}{kind}({words})"
        found.append(f"OfClasses({made})" if sparse and not kind.startswith("Sparse") else made)
    return found, {each for each in OWN if any(f"{each}(" in text for text in found)}


def _accuracy(plan: Plan) -> str:
    """Return the accuracy that Keras takes."""
    single = plan.layers[-1].shape[-1:] == (1,) and not plan.loss.type.startswith("sparse")
    return "BinaryAccuracy" if single or plan.loss.type == "binary_crossentropy" else "CategoricalAccuracy"


def targets_code(plan: Plan) -> tuple[str, ...]:
    """Return the statements that bring the array `y` to what the loss takes."""
    shape = plan.layers[-1].shape
    if plan.loss.type == "sparse_categorical_crossentropy":
        return (
            'y = np.asarray(data["y"]).astype("int32")',
            f"y = y[..., 0] if y.ndim == {len(shape) + 1} else y",
        )
    if plan.loss.type == "categorical_crossentropy" and shape[-1] is not None:
        return (
            'y = np.asarray(data["y"])',
            f"if y.ndim == {len(shape)}:  # numbers of classes",
            f'    y = np.eye({shape[-1]})[y.astype("int64")]',
            'y = y.astype("float32")',
        )
    if shape == (1,):
        return ('y = np.asarray(data["y"]).astype("float32").reshape(-1, 1)',)
    return ('y = np.asarray(data["y"]).astype("float32")',)
