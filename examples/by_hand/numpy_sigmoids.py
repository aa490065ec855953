"""Train ten layers of sigmoids in numpy alone, and record it by hand: the gradient vanishes on the way down.

The data are the 1,797 8x8 digits that come with scikit-learn. With tanh and Xavier's scale (``--sound``) it learns.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np
from sklearn.datasets import load_digits

from neuraldbg import debug_session

Array = np.ndarray
Parameters = dict[str, dict[str, Array]]

WIDTHS = [64, *[32] * 9, 10]
STEPS = 300
BATCH_SIZE = 64
LEARNING_RATE = 0.1


def main(*, sound: bool) -> None:
    draw = np.random.default_rng(0)
    digits = load_digits()
    images, labels = digits.data / 16.0, digits.target
    parameters = {}
    for i, (before, after) in enumerate(itertools.pairwise(WIDTHS)):
        scale = np.sqrt(2 / (before + after)) if sound else 0.1
        parameters[f"dense{i}"] = {"kernel": draw.normal(0, scale, (before, after)), "bias": np.zeros(after)}

    with debug_session(output_dir="runs/numpy") as session:
        session.record_optimizer("SGD", learning_rate=LEARNING_RATE)
        session.record_loss("cross_entropy", classes=10)
        session.record_parameters(parameters)
        for step in range(STEPS):
            batch = draw.integers(len(images), size=BATCH_SIZE)
            loss, gradients, outputs = loss_and_gradients(parameters, images[batch], labels[batch], sound=sound)
            for layer, of in gradients.items():
                for name, gradient in of.items():
                    parameters[layer][name] -= LEARNING_RATE * gradient
            session.record_step(
                step,
                loss=loss,
                learning_rate=LEARNING_RATE,
                gradients=gradients,
                parameters=parameters,
                activations=outputs,
                accuracy=np.mean(outputs["dense9"].argmax(axis=1) == labels[batch]),
            )

    print(session.stop().summary())


def loss_and_gradients(
    parameters: Parameters, x: Array, y: Array, *, sound: bool
) -> tuple[float, Parameters, dict[str, Array]]:
    """Return the cross entropy of a batch, its gradients and the outputs of all layers."""
    inputs, outputs = [], {}
    for i, (layer, of) in enumerate(parameters.items()):
        inputs.append(x)
        x = outputs[layer] = x @ of["kernel"] + of["bias"]
        if i < len(parameters) - 1:
            x = np.tanh(x) if sound else 1 / (1 + np.exp(-x))
    shifted = x - x.max(axis=1, keepdims=True)
    chances = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(chances[rows, y]).mean()
    slope = chances
    slope[rows, y] -= 1
    slope /= len(y)
    gradients = {}
    for (layer, of), x in zip(reversed(parameters.items()), reversed(inputs), strict=True):
        gradients[layer] = {"kernel": x.T @ slope, "bias": slope.sum(axis=0)}
        slope = slope @ of["kernel"].T
        slope *= 1 - x**2 if sound else x * (1 - x)
    return loss, dict(reversed(gradients.items())), outputs


if __name__ == "__main__":
    main(sound="--sound" in sys.argv)
