"""Train a network in JAX with optax, and record it by hand: Adam's learning rate is 3, where 0.003 was meant.

The data are the 1,797 8x8 digits that come with scikit-learn. ``--sound`` has the right rate.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

from neuraldbg import debug_session

Parameters = dict[str, dict[str, jax.Array]]

STEPS = 150
BATCH_SIZE = 64


def main(*, sound: bool) -> None:
    learning_rate = 0.003 if sound else 3.0
    digits = load_digits()
    images, labels = jnp.array(digits.data / 16.0), jnp.array(digits.target)
    keys = jax.random.split(jax.random.key(0), 4)
    widths = [64, 64, 64, 10]
    parameters = {
        f"dense{i}": {
            "kernel": jax.nn.initializers.he_normal()(keys[i], (widths[i], widths[i + 1])),
            "bias": jnp.zeros(widths[i + 1]),
        }
        for i in range(3)
    }
    optimizer = optax.adam(learning_rate)
    state = optimizer.init(parameters)

    @jax.jit
    def train_step(
        parameters: Parameters, state: optax.OptState, x: jax.Array, y: jax.Array
    ) -> tuple[Parameters, optax.OptState, jax.Array, Parameters]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(parameters, updates), state, loss, gradients

    with debug_session(output_dir="runs/jax") as session:
        session.record_optimizer("Adam", learning_rate=learning_rate, betas=(0.9, 0.999), eps=1e-8)
        session.record_loss("cross_entropy", classes=10)
        session.record_parameters(parameters)
        for step in range(STEPS):
            batch = jax.random.randint(jax.random.key(step), (BATCH_SIZE,), 0, len(images))
            x, y = images[batch], labels[batch]
            parameters, state, loss, gradients = train_step(parameters, state, x, y)
            session.record_step(
                step,
                loss=loss,
                learning_rate=learning_rate,
                gradients=gradients,
                parameters=parameters,
                accuracy=jnp.mean(outputs_of(parameters, x).argmax(axis=1) == y),
            )

    print(session.stop().summary())


def outputs_of(parameters: Parameters, x: jax.Array) -> jax.Array:
    """Return the logits of a batch."""
    for i in range(3):
        x = x @ parameters[f"dense{i}"]["kernel"] + parameters[f"dense{i}"]["bias"]
        x = jax.nn.relu(x) if i < 2 else x
    return x


def loss_of(parameters: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean cross entropy of a batch."""
    losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(outputs_of(parameters, x), y)
    return losses.mean()


if __name__ == "__main__":
    main(sound="--sound" in sys.argv)
