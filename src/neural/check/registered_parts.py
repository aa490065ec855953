"""The losses, optimizers, schedules and metrics of Keras, and the settings of `train`, with their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neural.layers.parameter import (
    ANYTHING,
    BELOW_ONE,
    COUNT,
    FLAG,
    FRACTION,
    NOT_NEGATIVE,
    NUMBER,
    POSITIVE,
    REQUIRED,
    TEXT,
    WHOLE_FROM_0,
    Kind,
    Parameter,
    Unfit,
    one_of,
    optional,
)
from neural.plan import SEARCHES


@dataclass(frozen=True)
class PartType:
    """Describe a loss, an optimizer or a schedule."""

    name: str
    parameters: tuple[Parameter, ...]
    positional: int = 0
    aliases: tuple[str, ...] = ()


def _by_name(*parts: PartType) -> dict[str, PartType]:
    return {name.lower(): part for part in parts for name in (*part.aliases, part.name)}


# ---------------------------------------------------------------- losses

LOGITS = Parameter("from_logits", FLAG, False, "The output is not a probability yet")
SMOOTHING = Parameter("label_smoothing", FRACTION, 0.0, "Share of certainty that is taken from the labels")

LOSSES = _by_name(
    PartType("categorical_crossentropy", (LOGITS, SMOOTHING), aliases=("crossentropy", "cross_entropy")),
    PartType("sparse_categorical_crossentropy", (LOGITS,), aliases=("sparse_crossentropy",)),
    PartType("binary_crossentropy", (LOGITS, SMOOTHING), aliases=("bce",)),
    PartType("mean_squared_error", (), aliases=("mse",)),
    PartType("mean_absolute_error", (), aliases=("mae",)),
    PartType("huber", (Parameter("delta", POSITIVE, 1.0, "Where it turns from square to line"),), 1, ("huber_loss",)),
    PartType("log_cosh", (), aliases=("logcosh",)),
    PartType("hinge", ()),
    PartType("squared_hinge", ()),
    PartType("kl_divergence", (), aliases=("kld", "kullback_leibler_divergence")),
    PartType("poisson", ()),
    PartType("cosine_similarity", ()),
)

# ---------------------------------------------------------------- optimizers


@dataclass(frozen=True)
class Scheduled:
    """Hold a learning rate that changes, as the value of `learning_rate`."""

    call: Any


def _rate(value: Any) -> Any:
    return value if isinstance(value, Scheduled) else POSITIVE.convert(value)


LEARNING_RATE = Kind("a number above 0 or a schedule, such as ExponentialDecay(0.1, 1000, 0.96)", _rate)


def _optimizer(name: str, rate: float, *own: Parameter) -> PartType:
    return PartType(
        name,
        (
            Parameter("learning_rate", LEARNING_RATE, rate, "Size of its steps", aliases=("lr",)),
            *own,
            Parameter(
                "weight_decay", optional(NOT_NEGATIVE), 0.004 if name == "AdamW" else None, "Pull of weights to 0"
            ),
            Parameter("clipnorm", optional(POSITIVE), None, "Largest norm of the gradient of a weight"),
            Parameter("global_clipnorm", optional(POSITIVE), None, "Largest norm of all gradients"),
            Parameter("clipvalue", optional(POSITIVE), None, "Largest value of a gradient"),
        ),
        positional=1,
    )


def _epsilon(default: float = 1e-7) -> Parameter:
    return Parameter("epsilon", POSITIVE, default, "Added to what it divides by", aliases=("eps",))


BETA_1 = Parameter("beta_1", BELOW_ONE, 0.9, "Weight of the old mean of gradients", aliases=("beta1",))
BETA_2 = Parameter("beta_2", BELOW_ONE, 0.999, "Weight of the old mean of squares", aliases=("beta2",))
MOMENTUM = Parameter("momentum", FRACTION, 0.0, "Weight of the step before")
NESTEROV = Parameter("nesterov", FLAG, False, "Look ahead by the momentum")
AMSGRAD = Parameter("amsgrad", FLAG, False, "Divide by the largest mean of squares so far")
RHO = Parameter("rho", FRACTION, 0.9, "Weight of the old mean of squares")
START = Parameter("initial_accumulator_value", NOT_NEGATIVE, 0.1, "Sum of squares at the start")

OPTIMIZERS = _by_name(
    _optimizer("Adam", 0.001, BETA_1, BETA_2, _epsilon(), AMSGRAD),
    _optimizer("AdamW", 0.001, BETA_1, BETA_2, _epsilon(), AMSGRAD),
    _optimizer("SGD", 0.01, MOMENTUM, NESTEROV),
    _optimizer("RMSprop", 0.001, RHO, MOMENTUM, _epsilon(), Parameter("centered", FLAG, False, "Subtract the mean")),
    _optimizer("Adagrad", 0.001, START, _epsilon()),
    _optimizer("Adadelta", 0.001, Parameter("rho", FRACTION, 0.95, "Weight of the old mean of squares"), _epsilon()),
    _optimizer("Adamax", 0.001, BETA_1, BETA_2, _epsilon()),
    _optimizer("Nadam", 0.001, BETA_1, BETA_2, _epsilon()),
)

# ---------------------------------------------------------------- schedules


def _ascending(value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, tuple) else (value,)
    found = tuple(NUMBER.convert(each) for each in values)
    if not found or list(found) != sorted(found):
        raise Unfit
    return found


def _rates(value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, tuple) else (value,)
    if not values:
        raise Unfit
    return tuple(POSITIVE.convert(each) for each in values)


INITIAL = Parameter(
    "initial_learning_rate", POSITIVE, REQUIRED, "The rate at the start", aliases=("initial", "initial_lr", "lr")
)
STEPS = Parameter("decay_steps", POSITIVE, REQUIRED, "Number of steps")
RATE = Parameter("decay_rate", POSITIVE, REQUIRED, "Factor or rate of the decay")
STAIRS = Parameter("staircase", FLAG, False, "Change the rate every decay_steps only")

SCHEDULES = _by_name(
    PartType("ExponentialDecay", (INITIAL, STEPS, RATE, STAIRS), 4),
    PartType("InverseTimeDecay", (INITIAL, STEPS, RATE, STAIRS), 4),
    PartType(
        "PolynomialDecay",
        (
            INITIAL,
            STEPS,
            Parameter("end_learning_rate", NOT_NEGATIVE, 0.0001, "The rate at the end"),
            Parameter("power", POSITIVE, 1.0, "Power of the polynomial"),
            Parameter("cycle", FLAG, False, "Begin again after decay_steps"),
        ),
        4,
    ),
    PartType(
        "PiecewiseConstantDecay",
        (
            Parameter(
                "boundaries", Kind("steps in ascending order, such as [1000, 2000]", _ascending), REQUIRED, "Steps"
            ),
            Parameter("values", Kind("rates above 0, such as [0.1, 0.01, 0.001]", _rates), REQUIRED, "One rate more"),
        ),
        2,
    ),
    PartType("CosineDecay", (INITIAL, STEPS, Parameter("alpha", FRACTION, 0.0, "Share of the rate at the end")), 3),
    PartType("StepDecay", (INITIAL, Parameter("decay_steps", COUNT, REQUIRED, "Number of epochs"), RATE), 3),
)

# ---------------------------------------------------------------- metrics and training

METRICS = (
    "accuracy", "auc", "binary_accuracy", "binary_crossentropy", "categorical_accuracy", "categorical_crossentropy",
    "cosine_similarity", "f1", "f1_score", "hinge", "kl_divergence", "loss", "mae", "mean_absolute_error",
    "mean_squared_error", "mse", "perplexity", "precision", "r2_score", "recall", "rmse", "root_mean_squared_error",
    "sparse_categorical_accuracy", "sparse_categorical_crossentropy", "sparse_top_k_categorical_accuracy",
    "top_k_accuracy", "top_k_categorical_accuracy",
)  # fmt: skip


def _patience(value: Any) -> Any:
    return value if isinstance(value, bool) else COUNT.convert(value)


PATIENCE = Kind("a number of epochs, or true or false", _patience)

TRAINING = (
    Parameter("epochs", COUNT, 10, "Passes over the data"),
    Parameter("batch_size", COUNT, 32, "Samples of a step"),
    Parameter("validation_split", FRACTION, 0.2, "Share of the data that is held back"),
    Parameter("gradient_clip", optional(POSITIVE), None, "Largest norm of all gradients", aliases=("clip_norm",)),
    Parameter("early_stopping", optional(PATIENCE), None, "Epochs without a better validation loss"),
    Parameter("shuffle", FLAG, True, "Take the samples in another order in each epoch"),
    Parameter("seed", optional(WHOLE_FROM_0), None, "The seed of all random numbers"),
    Parameter("search_method", optional(one_of(*SEARCHES)), None, "How a search goes on"),
    Parameter("mixed_precision", FLAG, False, "Compute in 16 bits where that is safe"),
    Parameter("save_path", optional(TEXT), None, "Where the weights are saved"),
    Parameter("device", optional(TEXT), None, "The device"),
    Parameter("hpo", ANYTHING, None, "What the section `hpo` says"),
)
"""The settings of `train`. The defaults of the first three are those of upstream."""
