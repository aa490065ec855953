"""The case of one run, for the judges: readings of its record, its symptoms, and profiles over depth."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence import depth_profiles
from neuraldbg.explain.evidence.metric_trends import metric_trends
from neuraldbg.explain.evidence.new_inputs import new_inputs
from neuraldbg.explain.evidence.symptom import Symptoms

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.depth_profiles import Profile, Weight
    from neuraldbg.explain.evidence.metric_trends import MetricTrend
    from neuraldbg.explain.evidence.new_inputs import NewInputs


class Case(Symptoms):
    """The cached evidence of one run, which every cause's judge gets; it names no cause."""

    @cached_property
    def first_update_ratio(self) -> float:
        """norm(update) / norm(weight) at the first step, before any update did harm; NaN if unknown."""
        values = self.scalar("update_ratio").finite().values
        return float(values[0]) if len(values) else float("nan")

    @cached_property
    def early_update_ratio(self) -> float:
        """Largest norm(update) / norm(weight) of the first ten steps; NaN if unknown."""
        values = self.early(self.scalar("update_ratio").finite(), depth_profiles.FIRST).values
        return float(values.max()) if len(values) else float("nan")

    @cached_property
    def typical_update_ratio(self) -> float:
        """Median norm(update) / norm(weight) over the run; NaN if unknown."""
        values = self.held(self.scalar("update_ratio").finite()).values
        return float(np.median(values)) if len(values) else float("nan")

    @cached_property
    def healthy_grad_norm(self) -> float:
        """90% quantile of the gradient norm before the onset, at least its median; NaN if too few are known."""
        return depth_profiles.healthy_norm(self)

    @cached_property
    def metric_trends(self) -> tuple[MetricTrend, ...]:
        """Metrics that the program logged and that do not follow the training loss, which falls."""
        return metric_trends(self)

    @cached_property
    def new_inputs(self) -> NewInputs | None:
        """The change of the model's inputs that lasts to the end of the run; None if there is none."""
        return new_inputs(self)

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        """Weight matrices at their first recorded step, in data-flow order."""
        return depth_profiles.weights(self)

    @cached_property
    def gradients(self) -> Profile:
        """Gradient size of each layer in the first recorded steps."""
        return depth_profiles.gradient_profile(self)

    @cached_property
    def activations(self) -> Profile:
        """Activation size of each layer at the first recorded step."""
        return depth_profiles.activation_profile(self)

    @cached_property
    def sound_init(self) -> bool | None:
        """Return True if the median gain of the weights began at a usual scale; None if unknown."""
        known = [w.gain for w in self.weights if w.gain > 0]
        return bool(0.2 <= float(np.median(known)) <= 3.0) if known else None

    @cached_property
    def has_norms(self) -> bool:
        """Return True if there is at least one normalisation layer for three weight matrices."""
        norms = sum(depth_profiles.is_norm(layer) for layer in self.layout.layers)
        return norms > 0 and norms * 3 >= len(self.weights)
