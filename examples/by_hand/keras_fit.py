"""Train a Keras 3 model with ``fit``, on any of its backends, and record it by hand in a callback.

The images are not scaled: they are numbers from 0 to 255. Keras gives a callback the loss and the weights, and no
gradients. With ``--sound`` they are scaled.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "jax", "tensorflow"

import keras
from sklearn.datasets import load_digits

from neuraldbg import DebugSession, ModelArchitectureInfo, debug_session

EPOCHS = 6


class Recorder(keras.callbacks.Callback):
    """Records the loss, the metrics and the weights of each batch."""

    def __init__(self, session: DebugSession) -> None:
        super().__init__()
        self.session = session
        self.mean = 0.0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any]) -> None:
        # Keras gives the mean over the epoch so far: a batch's own loss is what it adds to the sum.
        before, self.mean = (self.mean if batch else 0.0), float(logs["loss"])
        loss = self.mean * (batch + 1) - before * batch
        weights = {weight.path: weight for weight in self.model.weights}
        rate = self.model.optimizer.learning_rate
        self.session.record_step(loss=loss, learning_rate=rate, parameters=weights, accuracy=logs["accuracy"])

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:  # noqa: ARG002 (Keras gives it by name)
        self.session.record_evaluation(loss=logs["val_loss"], accuracy=logs["val_accuracy"])


def main(*, sound: bool) -> None:
    keras.utils.set_random_seed(0)
    digits = load_digits()
    images = digits.data / 16.0 if sound else digits.data / 16.0 * 255.0
    layers = [keras.layers.Dense(64, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(10)])
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

    with debug_session(output_dir="runs/keras") as session:
        session.model_diagnostics.record_architecture(ModelArchitectureInfo.of(model))
        session.record_optimizer("SGD", learning_rate=0.1)
        session.record_loss("cross_entropy", classes=10)
        session.record_parameters({weight.path: weight for weight in model.weights})
        session.record_inputs(images[:64])
        callbacks = [Recorder(session)]
        model.fit(
            images, digits.target, epochs=EPOCHS, batch_size=64, validation_split=0.2, verbose=0, callbacks=callbacks
        )

    print(session.stop().summary())


if __name__ == "__main__":
    main(sound="--sound" in sys.argv)
