"""Optimizers, schedules and losses twice: as the language writes them, and in Keras, which is the oracle.

As a script it writes what Keras computes, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DECAY = "PiecewiseConstantDecay([3, 7], [0.1, 0.05, 0.01])"
OPTIMIZERS = {
    "Adam(learning_rate=0.01, beta_1=0.8)": ("Adam", {"learning_rate": 0.01, "beta_1": 0.8}),
    "Adam(0.01, amsgrad=true)": ("Adam", {"learning_rate": 0.01, "amsgrad": True}),
    "Adam(0.01, weight_decay=0.1)": ("Adam", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "AdamW(0.01)": ("AdamW", {"learning_rate": 0.01}),
    "SGD(0.1)": ("SGD", {"learning_rate": 0.1}),
    "SGD(0.1, weight_decay=0.2)": ("SGD", {"learning_rate": 0.1, "weight_decay": 0.2}),
    "SGD(0.1, momentum=0.9)": ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    "SGD(0.1, momentum=0.9, nesterov=true)": ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "RMSprop(0.01)": ("RMSprop", {"learning_rate": 0.01}),
    "RMSprop(0.01, rho=0.8, momentum=0.5)": ("RMSprop", {"learning_rate": 0.01, "rho": 0.8, "momentum": 0.5}),
    "Adagrad(0.1)": ("Adagrad", {"learning_rate": 0.1}),
    "Adadelta(0.5)": ("Adadelta", {"learning_rate": 0.5}),
    "Adamax(0.01)": ("Adamax", {"learning_rate": 0.01}),
    "Nadam(0.01)": ("Nadam", {"learning_rate": 0.01}),
    # epsilon where it counts
    "Adam(0.01, epsilon=0.1)": ("Adam", {"learning_rate": 0.01, "epsilon": 0.1}),
    "Adam(0.01, epsilon=0.1, amsgrad=true)": ("Adam", {"learning_rate": 0.01, "epsilon": 0.1, "amsgrad": True}),
    "Adam(0.01, epsilon=0.1, weight_decay=0.1)": ("Adam", {"learning_rate": 0.01, "epsilon": 0.1, "weight_decay": 0.1}),
    "AdamW(0.01, epsilon=0.1)": ("AdamW", {"learning_rate": 0.01, "epsilon": 0.1}),
    "RMSprop(0.01, epsilon=0.1)": ("RMSprop", {"learning_rate": 0.01, "epsilon": 0.1}),
    "RMSprop(0.01, centered=true)": ("RMSprop", {"learning_rate": 0.01, "centered": True}),
    "Adagrad(0.1, epsilon=0.1)": ("Adagrad", {"learning_rate": 0.1, "epsilon": 0.1}),
    "Adagrad(0.1, initial_accumulator_value=0.0)": ("Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0}),
    "Adadelta(0.5, epsilon=0.1)": ("Adadelta", {"learning_rate": 0.5, "epsilon": 0.1}),
    "Adamax(0.01, epsilon=0.1)": ("Adamax", {"learning_rate": 0.01, "epsilon": 0.1}),
    "Nadam(0.01, epsilon=0.1)": ("Nadam", {"learning_rate": 0.01, "epsilon": 0.1}),
    # a momentum under a schedule
    f"SGD({DECAY}, momentum=0.9)": ("SGD", {"momentum": 0.9}),
    f"SGD({DECAY}, momentum=0.9, nesterov=true)": ("SGD", {"momentum": 0.9, "nesterov": True}),
    f"RMSprop({DECAY}, momentum=0.9, centered=true)": ("RMSprop", {"momentum": 0.9, "centered": True}),
}
"""An optimizer in a file, and the same in Keras; without a rate there it has the schedule DECAY."""
SMALL = ("RMSprop(0.01)", "RMSprop(0.01, centered=true)", "Adagrad(0.1)", "Adadelta(0.5)", "Nadam(0.01)")
"""Optimizers that train as Keras's at gradients of a hundred-thousandth, too."""
SCHEDULES = {
    "ExponentialDecay(0.1, 5, 0.9)": ("ExponentialDecay", (0.1, 5, 0.9)),
    "ExponentialDecay(0.1, 5, 0.9, true)": ("ExponentialDecay", (0.1, 5, 0.9, True)),
    "InverseTimeDecay(0.1, 5, 0.5)": ("InverseTimeDecay", (0.1, 5, 0.5)),
    "InverseTimeDecay(0.1, 5, 0.5, true)": ("InverseTimeDecay", (0.1, 5, 0.5, True)),
    "PolynomialDecay(0.1, 8)": ("PolynomialDecay", (0.1, 8)),
    "PolynomialDecay(0.1, 8, 0.01, 2.0)": ("PolynomialDecay", (0.1, 8, 0.01, 2.0)),
    "PolynomialDecay(0.1, 4, 0.01, 2.0, cycle=true)": ("PolynomialDecay", (0.1, 4, 0.01, 2.0, True)),
    "PiecewiseConstantDecay([3, 7], [0.1, 0.05, 0.01])": ("PiecewiseConstantDecay", ([3, 7], [0.1, 0.05, 0.01])),
    "CosineDecay(0.1, 9)": ("CosineDecay", (0.1, 9)),
    "CosineDecay(0.1, 9, 0.2)": ("CosineDecay", (0.1, 9, 0.2)),
}
STEPS = 12
LOSSES = {
    "categorical_crossentropy": ("softmax", "CategoricalCrossentropy", {}),
    "categorical_crossentropy(label_smoothing=0.2)": ("softmax", "CategoricalCrossentropy", {"label_smoothing": 0.2}),
    "categorical_crossentropy(from_logits=true)": ("linear", "CategoricalCrossentropy", {"from_logits": True}),
    "crossentropy": ("sigmoid", "CategoricalCrossentropy", {}),
    "sparse_categorical_crossentropy": ("softmax", "SparseCategoricalCrossentropy", {}),
    "sparse_crossentropy": ("sigmoid", "SparseCategoricalCrossentropy", {}),
    "binary_crossentropy": ("sigmoid", "BinaryCrossentropy", {}),
    "binary_crossentropy(label_smoothing=0.2)": ("sigmoid", "BinaryCrossentropy", {"label_smoothing": 0.2}),
    "bce": ("softmax", "BinaryCrossentropy", {}),
    "mse": ("linear", "MeanSquaredError", {}),
    "mae": ("linear", "MeanAbsoluteError", {}),
    "huber(delta=0.5)": ("linear", "Huber", {"delta": 0.5}),
    "log_cosh": ("linear", "LogCosh", {}),
    "hinge": ("tanh", "Hinge", {}),
    "squared_hinge": ("tanh", "SquaredHinge", {}),
    "kl_divergence": ("softmax", "KLDivergence", {}),
    "poisson": ("softplus", "Poisson", {}),
    "cosine_similarity": ("linear", "CosineSimilarity", {}),
}
"""The loss in a file; the last activation, and the loss in Keras."""
START = [[0.5, -1.0, 0.25], [2.0, 0.0, -0.75]]
"""First weights, and what stands before the last activation of two samples."""
GRADIENTS = [
    [[((3 * step + 5 * row + 7 * column) % 11 - 5) / 4 for column in range(3)] for row in range(2)]
    for step in range(STEPS)
]
CLASSES = [2, 0]
ONE_HOT = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def computed() -> dict[str, Any]:
    """Return what Keras computes."""
    import keras
    import numpy as np

    found: dict[str, Any] = {"optimizers": {}, "small": {}, "schedules": {}, "losses": {}}

    def moved(text: str, scale: float) -> Any:
        name, values = OPTIMIZERS[text]
        schedule, arguments = SCHEDULES[DECAY]
        rate = {"learning_rate": getattr(keras.optimizers.schedules, schedule)(*arguments)}
        weight = keras.Variable(np.array(START, "float32"))
        optimizer = getattr(keras.optimizers, name)(**{**rate, **values})
        for gradient in GRADIENTS:
            optimizer.apply([keras.ops.convert_to_tensor(np.array(gradient, "float32") * scale)], [weight])
        return weight.numpy().tolist()

    found["optimizers"] = {text: moved(text, 1) for text in OPTIMIZERS}
    found["small"] = {text: moved(text, 1e-5) for text in SMALL}
    for text, (name, arguments) in SCHEDULES.items():
        schedule = getattr(keras.optimizers.schedules, name)(*arguments)
        found["schedules"][text] = [float(schedule(step)) for step in range(STEPS)]
    for text, (activation, name, values) in LOSSES.items():
        outputs = keras.activations.get(activation)(keras.ops.convert_to_tensor(np.array(START, "float32")))
        targets = np.array(CLASSES if name.startswith("Sparse") else ONE_HOT, "float32")
        found["losses"][text] = float(getattr(keras.losses, name)(**values)(targets, outputs))
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(computed()))
