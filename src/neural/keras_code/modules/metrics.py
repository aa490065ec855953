"""Metrics that Keras lacks."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


class OfClasses(keras.metrics.Metric):
    """Give a metric one-hot targets where the loss takes numbers of classes."""

    def __init__(self, metric: keras.metrics.Metric) -> None:
        super().__init__(name=metric.name)
        self.metric = metric

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        if len(y_true.shape) == len(y_pred.shape):
            y_true = ops.squeeze(y_true, axis=-1)
        one_hot = ops.one_hot(ops.cast(y_true, "int32"), y_pred.shape[-1], dtype="float32")
        self.metric.update_state(one_hot, y_pred, sample_weight)

    def result(self) -> Any:
        return self.metric.result()

    def reset_state(self) -> None:
        self.metric.reset_state()


class F1(keras.metrics.Metric):
    """Take the harmonic mean of precision and recall of all predictions above 0.5."""

    def __init__(self, name: str = "f1_score") -> None:
        super().__init__(name=name)
        self.precision, self.recall = keras.metrics.Precision(), keras.metrics.Recall()

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.precision.update_state(y_true, y_pred, sample_weight)
        self.recall.update_state(y_true, y_pred, sample_weight)

    def result(self) -> Any:
        one, other = self.precision.result(), self.recall.result()
        return 2 * one * other / ops.maximum(one + other, 1e-7)

    def reset_state(self) -> None:
        self.precision.reset_state()
        self.recall.reset_state()


class Perplexity(keras.metrics.CategoricalCrossentropy):
    """Count the equally likely classes that would be as hard to tell."""

    def result(self) -> Any:
        return ops.exp(super().result())
